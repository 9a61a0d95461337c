/*
 * p2p_pool.c - records of messages, found by number, and buffers for what is kept.
 *
 * Both are used again rather than freed, so that a rank that is warm allocates nothing. A number holds its
 * slot and how often the slot was used: the number of a message that is over finds nothing.
 */
#include "transport/p2p_state.h"

#include <string.h>

#include "base/mem.h"

enum {
    BUFFERS_KEPT = 64, /* of each size, and no more than so many bytes of them */
    BUFFERS_KEPT_NBYTES = 512 * 1024,
    SLOTS_FIRST = 64,
};

static bool grow_slots(struct ch_p2p *p2p)
{
    uint32_t room = p2p->slots_room == 0 ? SLOTS_FIRST : 2 * p2p->slots_room;
    struct message **slots;

    if (room < p2p->slots_room)
        return false;
    slots = ch_regrow(p2p->slots, room, sizeof(struct message *));
    if (slots == NULL)
        return false;
    p2p->slots = slots;
    p2p->slots_room = room;
    return true;
}

/* A record with a slot of its own. */
static struct message *more_messages(struct ch_p2p *p2p)
{
    struct message *m;

    if (p2p->nslots == p2p->slots_room && !grow_slots(p2p))
        return NULL;
    m = ch_zalloc(sizeof(*m));
    if (m == NULL)
        return NULL;
    m->id = p2p->nslots;
    p2p->slots[p2p->nslots++] = m;
    return m;
}

struct message *ch_message_new(struct ch_p2p *p2p, struct peer *peer, enum message_kind kind)
{
    struct ch_list *link = ch_list_pop_front(&p2p->free_messages);
    struct message *m = link != NULL ? CH_CONTAINER(link, struct message, link)
                                     : more_messages(p2p);
    uint64_t id;

    if (m == NULL)
        return NULL;
    id = m->id + (UINT64_C(1) << 32); /* never 0: that is an EAGER one's */
    *m = (struct message){ .kind = kind, .peer = peer->rank, .id = id };
    ch_list_init(&m->link);
    ch_list_push_back(&peer->messages, &m->of_peer);
    return m;
}

void ch_message_free(struct ch_p2p *p2p, struct message *message)
{
    if (message->buffer != NULL)
        ch_buffer_free(p2p, message->buffer);
    if (p2p->peers[message->peer].out.message == message)
        p2p->peers[message->peer].out.message = NULL; /* its frame goes on without it */
    p2p->peers[message->peer].nfree -= message->counted;
    message->buffer = NULL;
    message->transfer = NULL;
    message->kind = MESSAGE_FREE;
    ch_list_remove(&message->of_peer);
    ch_list_remove(&message->link);
    ch_list_push_front(&p2p->free_messages, &message->link);
}

struct message *ch_message_find(struct ch_p2p *p2p, const struct peer *peer, uint64_t id,
                                enum message_kind kind)
{
    uint32_t slot = (uint32_t)id;
    struct message *m;

    if (slot >= p2p->nslots)
        return NULL;
    m = p2p->slots[slot];
    return m->id == id && m->kind == kind && m->peer == peer->rank ? m : NULL;
}

static int class_of(size_t room)
{
    int class = 0;

    while ((size_t)CH_FRAME_BUFFER_MIN << class < room)
        class ++;
    return class;
}

struct buffer *ch_buffer_new(struct ch_p2p *p2p, size_t nbytes)
{
    size_t room = ch_frame_buffer((uint32_t)nbytes);
    int class = class_of(room);
    struct ch_list *link = ch_list_pop_front(&p2p->free_buffers[class]);
    struct buffer *b;

    if (link != NULL) {
        p2p->nfree_buffers[class]--;
        return CH_CONTAINER(link, struct buffer, link);
    }
    b = ch_alloc(sizeof(*b) + room);
    if (b == NULL)
        return NULL;
    ch_list_init(&b->link);
    b->room = room;
    return b;
}

void ch_buffer_free(struct ch_p2p *p2p, struct buffer *buffer)
{
    int class = class_of(buffer->room);

    if (p2p->nfree_buffers[class] == BUFFERS_KEPT ||
        (p2p->nfree_buffers[class] + 1) * buffer->room > BUFFERS_KEPT_NBYTES) {
        ch_free(buffer);
        return;
    }
    p2p->nfree_buffers[class]++;
    ch_list_push_front(&p2p->free_buffers[class], &buffer->link);
}

void ch_pool_fini(struct ch_p2p *p2p)
{
    for (uint32_t i = 0; i < p2p->nslots; i++) {
        ch_free(p2p->slots[i]->buffer);
        ch_free(p2p->slots[i]);
    }
    ch_free(p2p->slots);
    for (int class = 0; class < BUFFER_CLASSES; class ++) {
        struct ch_list *link;

        while ((link = ch_list_pop_front(&p2p->free_buffers[class])) != NULL)
            ch_free(CH_CONTAINER(link, struct buffer, link));
    }
}
