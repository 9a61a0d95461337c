/*
 * torch_sparse.hpp - the sum of sparse tensors.
 */
#ifndef CHOIR_TORCH_SPARSE_HPP
#define CHOIR_TORCH_SPARSE_HPP

#include "torch_tensors.hpp"

namespace {

/* What a sparse all-reduce reads and writes; lives as long as the work. */
struct Sparse {
    Tensor given, indices, values;
    std::vector<int64_t> shape;
    choir_sparse in = {}, out = {};

    ~Sparse()
    {
        choir_sparse_free(&out);
    }

    explicit Sparse(const Tensor &tensor)
        : given(tensor), indices(tensor._indices().contiguous()),
          values(tensor._values().contiguous())
    {
        int64_t nnz = tensor._nnz();

        shape.assign(tensor.sizes().begin(), tensor.sizes().begin() + tensor.sparse_dim());
        in.ndim = (int)tensor.sparse_dim();
        in.nnz = (size_t)nnz;
        in.value_count = 1;
        for (int64_t d = 1; d < values.dim(); d++)
            in.value_count *= (size_t)values.size(d);
        in.shape = shape.data();
        in.indices = indices.data_ptr<int64_t>();
        in.values = values.data_ptr();
        in.type = type_of(values, true);
    }

    /* The sum into the tensor of the call. */
    void deliver()
    {
        std::vector<int64_t> sizes = values.sizes().vec();
        Tensor sum_indices = at::empty({ out.ndim, (int64_t)out.nnz }, indices.options());

        sizes[0] = (int64_t)out.nnz;
        Tensor sum_values = at::empty(sizes, values.options());

        if (out.nnz > 0) {
            memcpy(sum_indices.data_ptr(), out.indices, sum_indices.nbytes());
            memcpy(sum_values.data_ptr(), out.values, sum_values.nbytes());
        }
        Tensor sum = at::_sparse_coo_tensor_unsafe(sum_indices, sum_values, given.sizes());

        sum._coalesced_(true);
        at::NoGradGuard no_grad;
        given.copy_(sum);
        given._coalesced_(true);
    }
};

} // namespace

#endif
