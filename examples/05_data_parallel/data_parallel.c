/*
 * data_parallel.c - a small network, trained by all ranks together.
 *
 * Every rank has the same weights and its own share of the examples. In each step it finds the
 * gradient of its share; one all-reduce makes of these the mean gradient of all, the same bits on every
 * rank; so all take the same step, and the weights stay equal. That is data parallelism, and all of it.
 *
 * The network has one hidden layer and learns the function in target() from examples.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <choir/choir.h>

enum { HIDDEN = 64, EXAMPLES = 8192, BATCH = 256, STEPS = 3000, SHOW_EVERY = 200 };

/* All weights behind each other, so that one all-reduce carries the whole gradient. */
struct network {
    float in[HIDDEN][2], bias[HIDDEN], out[HIDDEN], out_bias;
};
enum { NWEIGHTS = sizeof(struct network) / sizeof(float) };

static void check(choir_status rc)
{
    if (rc == CHOIR_OK)
        return;
    fprintf(stderr, "%s\n", choir_last_error());
    exit(1);
}

/* In [-1, 1). */
static float random_float(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (float)(*state >> 40) / (float)(1 << 23) - 1.0f;
}

static float target(float x, float y)
{
    return sinf(3 * x) * cosf(2 * y);
}

/* The network's answer; `hidden` keeps what the way back needs. */
static float forward(const struct network *net, float x, float y, float hidden[HIDDEN])
{
    float answer = net->out_bias;

    for (int h = 0; h < HIDDEN; h++) {
        hidden[h] = tanhf(net->in[h][0] * x + net->in[h][1] * y + net->bias[h]);
        answer += net->out[h] * hidden[h];
    }
    return answer;
}

/* Add the gradient of one example's squared error; returns the error. */
static float backward(const struct network *net, float x, float y, float scale,
                      struct network *gradient)
{
    float hidden[HIDDEN], error = forward(net, x, y, hidden) - target(x, y);

    gradient->out_bias += scale * 2 * error;
    for (int h = 0; h < HIDDEN; h++) {
        float inner = scale * 2 * error * net->out[h] * (1 - hidden[h] * hidden[h]);

        gradient->out[h] += scale * 2 * error * hidden[h];
        gradient->bias[h] += inner;
        gradient->in[h][0] += inner * x;
        gradient->in[h][1] += inner * y;
    }
    return scale * error * error;
}

/* One step: the gradient of this rank's share of the batch, the mean over all ranks, a step downhill. */
static float train(choir_group *group, struct network *net, float (*examples)[2], int step)
{
    int share = BATCH / choir_group_size(group), own = EXAMPLES / choir_group_size(group);
    struct {
        struct network gradient;
        float loss; /* travels along */
    } sums;

    memset(&sums, 0, sizeof(sums));
    for (int i = 0; i < share; i++) {
        const float *e = examples[(step * share + i) % own];

        sums.loss += backward(net, e[0], e[1], 1.0f / (float)share, &sums.gradient);
    }
    check(choir_allreduce(group, CHOIR_BUF(&sums, NWEIGHTS + 1, CHOIR_F32),
                          CHOIR_OPTS(allreduce, .op = CHOIR_AVG), NULL));
    for (int w = 0; w < NWEIGHTS; w++)
        ((float *)net)[w] -= 0.05f * ((const float *)&sums.gradient)[w];
    return sums.loss;
}

/* Of the weights' bytes (FNV): equal only if every bit is. */
static uint64_t hash(const struct network *net)
{
    const unsigned char *bytes = (const unsigned char *)net;
    uint64_t h = UINT64_C(14695981039346656037);

    for (size_t i = 0; i < sizeof(*net); i++)
        h = (h ^ bytes[i]) * UINT64_C(1099511628211);
    return h;
}

static void check_same_weights(choir_group *group, const struct network *net)
{
    uint64_t mine = hash(net), least = mine, most = mine;

    check(choir_allreduce(group, CHOIR_BUF(&least, 1, CHOIR_U64),
                          CHOIR_OPTS(allreduce, .op = CHOIR_MIN), NULL));
    check(choir_allreduce(group, CHOIR_BUF(&most, 1, CHOIR_U64),
                          CHOIR_OPTS(allreduce, .op = CHOIR_MAX), NULL));
    if (least != most) {
        fprintf(stderr, "rank %d: weights differ between ranks\n", choir_group_rank(group));
        exit(1);
    }
}

int main(void)
{
    static float examples[EXAMPLES][2];
    struct network net;
    choir_group *group;
    float loss = 0, first = 0;
    uint64_t random;
    int rank;

    check(choir_init(&group, NULL));
    rank = choir_group_rank(group);

    random = 1 + (uint64_t)rank; /* every rank starts elsewhere, then takes rank 0's weights */
    for (int w = 0; w < NWEIGHTS; w++)
        ((float *)&net)[w] = 0.5f * random_float(&random);
    check(choir_broadcast(group, CHOIR_BUF(&net, NWEIGHTS, CHOIR_F32), NULL, NULL));
    for (int i = 0; i < EXAMPLES; i++) {
        examples[i][0] = random_float(&random);
        examples[i][1] = random_float(&random);
    }

    for (int step = 0; step < STEPS; step++) {
        loss = train(group, &net, examples, step);
        first = step == 0 ? loss : first;
        if (rank == 0 && (step + 1) % SHOW_EVERY == 0) {
            printf("step %4d of %d  loss %.5f\n", step + 1, STEPS, loss);
            fflush(stdout);
        }
    }
    check_same_weights(group, &net);
    if (rank == 0)
        printf("loss fell from %.5f to %.5f; all %d ranks have the same weights (%016llx)\n", first,
               loss, choir_group_size(group), (unsigned long long)hash(&net));
    choir_group_destroy(group);
    return loss < first / 10 ? 0 : 1;
}
