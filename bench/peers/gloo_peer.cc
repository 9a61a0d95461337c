/*
 * gloo_peer.cc - gloo as a contender: gloo_peer DIR bound|free RANK RANKS ADDRESS, one process for each rank
 *
 * TCP is gloo's only way between processes. It has no reduce-scatter of this form: its users, PyTorch among them,
 * reduce everything and keep their share, and so do we.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "contender.h"

namespace {

struct Peer {
    std::shared_ptr<gloo::rendezvous::Context> context;
    std::vector<float> whole; /* of a reduce-scatter */
    std::unique_ptr<gloo::transport::UnboundBuffer> out, in;
    void *out_of = nullptr;
    size_t out_nbytes = 0;
};

void sum(void *to, const void *a, const void *b, size_t count)
{
    gloo::sum<float>(to, a, b, count);
}

void meet(void *self)
{
    gloo::BarrierOptions options(static_cast<Peer *>(self)->context);
    gloo::barrier(options);
}

void largest(void *self, double *values, int count)
{
    auto &context = static_cast<Peer *>(self)->context;
    size_t n = static_cast<size_t>(count);
    std::vector<double> all(n * static_cast<size_t>(context->size));
    gloo::AllgatherOptions options(context);

    options.setInput(values, n);
    options.setOutput(all.data(), all.size());
    gloo::allgather(options);
    for (size_t i = 0; i < all.size(); i++) {
        if (all[i] > values[i % n])
            values[i % n] = all[i];
    }
}

void allreduce(Peer &p, float *in, float *out, size_t count)
{
    gloo::AllreduceOptions o(p.context);

    o.setInput(in, count);
    o.setOutput(out, count);
    o.setReduceFunction(sum);
    gloo::allreduce(o);
}

void broadcast(Peer &p, const perf_shape *s, float *data)
{
    gloo::BroadcastOptions o(p.context);

    o.setOutput(data, s->count);
    o.setRoot(s->root);
    gloo::broadcast(o);
}

void reduce(Peer &p, const perf_shape *s, float *in, float *out)
{
    gloo::ReduceOptions o(p.context);

    o.setInput(in, s->count);
    o.setOutput(out, s->count);
    o.setRoot(s->root);
    o.setReduceFunction(sum);
    gloo::reduce(o);
}

void allgather(Peer &p, const perf_shape *s, float *in, float *out)
{
    gloo::AllgatherOptions o(p.context);

    o.setInput(in, s->block);
    o.setOutput(out, s->count);
    gloo::allgather(o);
}

void reduce_scatter(Peer &p, const perf_shape *s, float *in, float *out)
{
    if (p.whole.size() < s->count)
        p.whole.resize(s->count);
    allreduce(p, in, p.whole.data(), s->count);
    memcpy(out, p.whole.data() + static_cast<size_t>(s->rank) * s->block, s->block * sizeof(float));
}

void alltoall(Peer &p, const perf_shape *s, float *in, float *out)
{
    gloo::AlltoallOptions o(p.context);

    o.setInput(in, s->count);
    o.setOutput(out, s->count);
    gloo::alltoall(o);
}

void gather(Peer &p, const perf_shape *s, float *in, float *out)
{
    gloo::GatherOptions o(p.context);

    o.setInput(in, s->block);
    if (s->rank == s->root)
        o.setOutput(out, s->count);
    o.setRoot(s->root);
    gloo::gather(o);
}

void scatter(Peer &p, const perf_shape *s, float *in, float *out)
{
    gloo::ScatterOptions o(p.context);

    if (s->rank == s->root) {
        std::vector<float *> inputs;

        for (int i = 0; i < s->nranks; i++)
            inputs.push_back(in + static_cast<size_t>(i) * s->block);
        o.setInputs(inputs, s->block);
    }
    o.setOutput(out, s->block);
    o.setRoot(s->root);
    gloo::scatter(o);
}

void exchange(Peer &p, const perf_shape *s, float *in, float *out)
{
    size_t nbytes = s->count * sizeof(float);

    if (p.out_of != out || p.out_nbytes != nbytes) {
        p.in = p.context->createUnboundBuffer(in, nbytes);
        p.out = p.context->createUnboundBuffer(out, nbytes);
        p.out_of = out;
        p.out_nbytes = nbytes;
    }
    p.out->recv((s->rank + s->nranks - 1) % s->nranks, 1);
    p.in->send((s->rank + 1) % s->nranks, 1);
    p.in->waitSend();
    p.out->waitRecv();
}

void call(void *self, const perf_shape *s, float *in, float *out)
{
    Peer &p = *static_cast<Peer *>(self);

    switch (s->op) {
    case PERF_ALLREDUCE:
        return allreduce(p, in, out, s->count);
    case PERF_BROADCAST:
        return broadcast(p, s, out);
    case PERF_REDUCE:
        return reduce(p, s, in, out);
    case PERF_ALLGATHER:
        return allgather(p, s, in, out);
    case PERF_REDUCESCATTER:
        return reduce_scatter(p, s, in, out);
    case PERF_ALLTOALL:
        return alltoall(p, s, in, out);
    case PERF_GATHER:
        return gather(p, s, in, out);
    case PERF_SCATTER:
        return scatter(p, s, in, out);
    case PERF_BARRIER:
        return meet(self);
    case PERF_SENDRECV:
        return exchange(p, s, in, out);
    case PERF_NOPS:
        break;
    }
}

int serve(char **argv)
{
    Peer peer;
    contender c = {};
    gloo::transport::tcp::attr where;
    std::string folder = argv[1];

    c.name = "gloo";
    c.self = &peer;
    c.rank = atoi(argv[3]);
    c.nranks = atoi(argv[4]);
    c.nvariants = 1;
    c.barrier = meet;
    c.call = call;
    c.largest = largest;
    where.hostname = argv[5];
    gloo::rendezvous::FileStore store(folder + "/store");
    peer.context = std::make_shared<gloo::rendezvous::Context>(c.rank, c.nranks);
    auto device = gloo::transport::tcp::CreateDevice(where);
    peer.context->connectFullMesh(store, device);
    contender_bind(argv[2], c.rank);
    return contender_serve(&c, argv[1]);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: gloo_peer DIR bound|free RANK RANKS ADDRESS\n");
        return 2;
    }
    try {
        return serve(argv);
    } catch (const std::exception &wrong) {
        fprintf(stderr, "gloo rank %s: %s\n", argv[3], wrong.what());
        return 1;
    }
}
