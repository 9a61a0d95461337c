/*
 * torch_tensors.hpp - tensors as buffers of libchoir's.
 */
#ifndef CHOIR_TORCH_TENSORS_HPP
#define CHOIR_TORCH_TENSORS_HPP

#include <ATen/MemoryOverlap.h>

#include "torch_errors.hpp"

namespace {

/* Types that are only moved go by their size. */
choir_type type_by_size(const Tensor &tensor)
{
    switch (tensor.element_size()) {
    case 1:
        return CHOIR_U8;
    case 2:
        return CHOIR_U16;
    case 4:
        return CHOIR_U32;
    case 8:
        return CHOIR_U64;
    case 16:
        return CHOIR_COMPLEX128;
    default:
        TORCH_CHECK(false, "choir: Invalid scalar type ", tensor.scalar_type());
    }
}

choir_type type_of(const Tensor &tensor, bool reduced)
{
    switch (tensor.scalar_type()) {
    case at::kByte:
        return CHOIR_U8;
    case at::kChar:
        return CHOIR_I8;
    case at::kUInt16:
        return CHOIR_U16;
    case at::kShort:
        return CHOIR_I16;
    case at::kUInt32:
        return CHOIR_U32;
    case at::kInt:
        return CHOIR_I32;
    case at::kUInt64:
        return CHOIR_U64;
    case at::kLong:
        return CHOIR_I64;
    case at::kHalf:
        return CHOIR_F16;
    case at::kBFloat16:
        return CHOIR_BF16;
    case at::kFloat:
        return CHOIR_F32;
    case at::kDouble:
        return CHOIR_F64;
    case at::kFloat8_e4m3fn:
        return CHOIR_F8E4M3;
    case at::kFloat8_e5m2:
        return CHOIR_F8E5M2;
    case at::kBool:
        return CHOIR_BOOL;
    case at::kComplexFloat:
        return CHOIR_COMPLEX64;
    case at::kComplexDouble:
        return CHOIR_COMPLEX128;
    default:
        TORCH_CHECK(!reduced, "choir: Invalid scalar type ", tensor.scalar_type(),
                    ": this type can be moved, but not reduced");
        return type_by_size(tensor);
    }
}

/* What must live until a work is done. A tensor can be given other memory meanwhile (`tensor.data = ...`), so the memory that
 * it had is kept as well. */
struct Kept {
    Tensors tensors; /* of which sizes and strides are lent, or memory that is ours; and the inputs */
    std::vector<c10::Storage> memory;

    void add(Kept &&more)
    {
        tensors.insert(tensors.end(), more.tensors.begin(), more.tensors.end());
        memory.insert(memory.end(), more.memory.begin(), more.memory.end());
    }
};

/* The tensors of one call, and the buffers that point into them. */
struct Lent {
    explicit Lent(const char *op_, bool reduced_ = false) : op(op_), reduced(reduced_) {}

    const char *op;
    bool reduced;
    Kept kept;

    /* For a call that goes on when this thread has returned. */
    void keep(const Tensors &inputs, const Tensors &outputs)
    {
        kept.memory.reserve(inputs.size() + outputs.size());
        for (const Tensor &tensor : inputs)
            kept.memory.push_back(tensor.storage());
        for (const Tensor &tensor : outputs)
            kept.memory.push_back(tensor.storage());
        kept.tensors.insert(kept.tensors.end(), inputs.begin(), inputs.end());
    }

    void check(const Tensor &tensor) const
    {
        TORCH_CHECK(tensor.layout() == at::kStrided, "choir::", op,
                    ": only supports dense tensors, got ", tensor.layout());
        TORCH_CHECK(tensor.is_cpu(), "choir::", op, ": unsupported device type ", tensor.device(),
                    ", expected cpu");
    }

    choir_buf point(const Tensor &tensor)
    {
        choir_buf buf = {};

        buf.data = tensor.data_ptr();
        buf.count = (size_t)tensor.numel();
        buf.type = type_of(tensor, reduced);
        if (!tensor.is_contiguous()) {
            Tensor own = tensor.detach(); /* the caller may change the shape of its own meanwhile */

            buf.ndim = (int)own.dim();
            buf.sizes = own.sizes().data();
            buf.strides = own.strides().data();
            kept.tensors.push_back(std::move(own));
        }
        return buf;
    }

    /* Only read: anything that torch can make plain will do. */
    choir_buf in(const Tensor &tensor)
    {
        check(tensor);
        if (C10_LIKELY(tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg()))
            return point(tensor);
        if (!tensor.is_conj() && !tensor.is_neg() &&
            at::has_internal_overlap(tensor) == at::MemOverlap::No)
            return point(tensor);
        kept.tensors.push_back(tensor.detach().resolve_conj().resolve_neg().contiguous());
        return point(kept.tensors.back());
    }

    choir_buf out(const Tensor &tensor)
    {
        check(tensor);
        if (C10_UNLIKELY(!tensor.is_contiguous())) {
            TORCH_CHECK(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, "choir::", op,
                        ": elements of an output tensor share memory (strides ", tensor.strides(),
                        ")");
        }
        TORCH_CHECK(!tensor.is_conj() && !tensor.is_neg(), "choir::", op,
                    ": an output tensor is a lazily conjugated or negated view; resolve it first");
        return point(tensor);
    }

    std::vector<choir_buf> ins(const Tensors &tensors)
    {
        std::vector<choir_buf> bufs;

        bufs.reserve(tensors.size());
        for (const Tensor &tensor : tensors)
            bufs.push_back(in(tensor));
        return bufs;
    }

    std::vector<choir_buf> outs(const Tensors &tensors)
    {
        std::vector<choir_buf> bufs;

        bufs.reserve(tensors.size());
        for (const Tensor &tensor : tensors)
            bufs.push_back(out(tensor));
        return bufs;
    }
};

const Tensor &single(const Tensors &tensors, const char *op, const char *which)
{
    TORCH_CHECK(!tensors.empty(), "choir::", op, ": requires non-empty tensor list");
    TORCH_CHECK(tensors.size() == 1, "choir::", op, ": requires a single-element ", which,
                "tensor list, got ", tensors.size());
    return tensors[0];
}

const Tensors &single_list(const std::vector<Tensors> &lists, const char *op, const char *which)
{
    TORCH_CHECK(lists.size() == 1, "choir::", op, ": requires a single-element ", which,
                " list, got ", lists.size());
    return lists[0];
}

void check_length(size_t have, size_t expected, const char *op, const char *which)
{
    TORCH_CHECK(have == expected, "choir::", op, ": invalid ", which,
                " tensor list at index 0 (expected length ", expected, ", got ", have, ")");
}

bool one_type(const Tensors &tensors)
{
    for (const Tensor &tensor : tensors) {
        if (tensor.scalar_type() != tensors[0].scalar_type())
            return false;
    }
    return true;
}

} // namespace

#endif
