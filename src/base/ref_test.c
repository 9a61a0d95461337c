/* ref_test.c - the last one out, exactly once. */
#include "choir_test.h"

#include <pthread.h>

#include "base/ref.h"

enum { HOLDERS = 4, TURNS = 50000 };

static struct {
    struct ch_ref ref;
    int value; /* plain: the holders' writes must be seen by whoever ends it */
    pthread_mutex_t lock;
} object = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Atomic int ends;

static void *hold(void *arg)
{
    for (int i = 0; i < TURNS; i++) {
        ch_ref_get(&object.ref);
        CHOIR_CHECK(!ch_ref_put(&object.ref)); /* our own reference is still there */
    }
    pthread_mutex_lock(&object.lock);
    object.value++;
    pthread_mutex_unlock(&object.lock);
    if (ch_ref_put(&object.ref)) {
        CHOIR_CHECK_EQ(object.value, HOLDERS);
        atomic_fetch_add(&ends, 1);
    }
    return arg;
}

CHOIR_TEST(the_last_one_ends_it_once)
{
    pthread_t threads[HOLDERS];

    ch_ref_init(&object.ref);
    for (int i = 1; i < HOLDERS; i++)
        ch_ref_get(&object.ref);
    for (int i = 0; i < HOLDERS; i++)
        CHOIR_CHECK_EQ(pthread_create(&threads[i], NULL, hold, NULL), 0);
    for (int i = 0; i < HOLDERS; i++)
        pthread_join(threads[i], NULL);
    CHOIR_CHECK_EQ(atomic_load(&ends), 1);
}
