/*
 * attend.c - see attend.h.
 */
#include "group/attend.h"

#include "base/error.h"
#include "base/log.h"
#include "group/group.h"

enum { NAP_MS = 1 }; /* between looks, when no seat can be had */

/* --- the service thread's part ------------------------------------------------------------------- */

static void look(struct ch_attendant *attendant);

static void seat_is_rung(struct ch_watch *watch, uint32_t events)
{
    struct ch_attendant *attendant = CH_CONTAINER(watch, struct ch_attendant, watch);

    (void)events;
    ch_waiter_clear_seat(attendant->seat);
    look(attendant);
}

static void time_has_come(struct ch_timer *timer)
{
    look(CH_CONTAINER(timer, struct ch_attendant, timer));
}

static void stand_up(struct ch_attendant *attendant)
{
    if (attendant->seat < 0)
        return;
    ch_watch_remove(&attendant->watch);
    ch_waiter_stand(attendant->waiter, attendant->seat);
    attendant->seat = -1;
}

static bool sit_down(struct ch_attendant *attendant)
{
    struct ch_loop *loop = ch_service_loop(attendant->service);

    if (ch_waiter_sit(attendant->waiter, &attendant->seat) != CHOIR_OK) {
        attendant->seat = -1;
        return false;
    }
    if (ch_watch_add(loop, &attendant->watch, attendant->seat, EPOLLIN, seat_is_rung) == CHOIR_OK)
        return true;
    ch_waiter_stand(attendant->waiter, attendant->seat);
    attendant->seat = -1;
    return false;
}

/* Nothing left, unless it was handed over again meanwhile. */
static void let_go(struct ch_attendant *attendant, choir_group *group)
{
    bool again;

    ch_lock(&attendant->lock);
    again = group->kicked;
    if (!again) {
        ch_list_remove(&group->attended);
        group->in_attendance = false;
    }
    ch_unlock(&attendant->lock);
    if (!again)
        ch_group_unref(group);
}

/* A turn for everybody; the next deadline among them. */
static ch_deadline give_turns(struct ch_attendant *attendant)
{
    ch_deadline next = CH_NEVER;

    CH_LIST_EACH (link, &attendant->groups) {
        choir_group *group = CH_CONTAINER(link, choir_group, attended);

        ch_lock(&attendant->lock);
        group->kicked = false;
        ch_unlock(&attendant->lock);
        if (!ch_group_turn(group, &next))
            let_go(attendant, group);
    }
    return next;
}

static void look(struct ch_attendant *attendant)
{
    struct ch_timers *timers = ch_loop_timers(ch_service_loop(attendant->service));
    ch_deadline next = give_turns(attendant);

    if (ch_list_empty(&attendant->groups)) {
        stand_up(attendant);
        ch_timer_stop(&attendant->timer);
        return;
    }
    if (attendant->seat < 0) {
        if (sit_down(attendant))
            next = give_turns(attendant); /* what came before the seat was taken rang nobody */
        else
            next = ch_deadline_ms(NAP_MS);
    }
    if (next != CH_NEVER)
        ch_timer_start(timers, &attendant->timer, next);
    else
        ch_timer_stop(&attendant->timer);
}

static void take_over(struct ch_task *task)
{
    struct ch_attendant *attendant = CH_CONTAINER(task, struct ch_attendant, task);
    struct ch_list *link;

    ch_lock(&attendant->lock);
    attendant->posted = false;
    while ((link = ch_list_pop_front(&attendant->due)) != NULL)
        ch_list_push_back(&attendant->groups, link);
    ch_unlock(&attendant->lock);
    look(attendant);
}

static void stop(struct ch_task *task)
{
    struct ch_attendant *attendant = CH_CONTAINER(task, struct ch_attendant, stop_task);
    struct ch_list *link;

    stand_up(attendant);
    ch_timer_stop(&attendant->timer);
    while ((link = ch_list_pop_front(&attendant->groups)) != NULL)
        ch_group_unref(CH_CONTAINER(link, choir_group, attended));
    ch_post(&attendant->waiter->bell, &attendant->stopped, 1);
}

/* --- everybody else's ----------------------------------------------------------------------------- */

void ch_attend_kick(choir_group *group)
{
    struct ch_attendant *attendant = &group->context->attendant;

    if (attendant->service == NULL)
        return;
    ch_lock(&attendant->lock);
    group->kicked = true;
    if (!group->in_attendance) {
        group->in_attendance = true;
        ch_group_ref(group);
        ch_list_push_back(&attendant->due, &group->attended);
    }
    /* Posted under the lock: the service thread may be quick, and what it would look at must be there. In a
     * forked child there is nobody to post to. */
    if (!attendant->posted && ch_service_post(attendant->service, &attendant->task) == CHOIR_OK)
        attendant->posted = true;
    ch_unlock(&attendant->lock);
}

choir_status ch_attend_init(struct ch_attendant *attendant, struct ch_waiter *waiter,
                            bool has_service)
{
    attendant->waiter = waiter;
    attendant->seat = -1;
    attendant->task.run = take_over;
    attendant->stop_task.run = stop;
    attendant->timer.fire = time_has_come;
    ch_list_init(&attendant->due);
    ch_list_init(&attendant->groups);
    return has_service ? ch_service_ref(&attendant->service) : CHOIR_OK;
}

void ch_attend_fini(struct ch_attendant *attendant)
{
    struct ch_wait wait = { .waiter = attendant->waiter,
                            .until = CH_NEVER,
                            .what = "the service thread to let go" };

    if (attendant->service != NULL &&
        ch_service_post(attendant->service, &attendant->stop_task) == CHOIR_OK) {
        while (ch_wait_flag(&wait, &attendant->stopped, 1) != CHOIR_OK)
            ch_log_warn("%s", choir_last_error()); /* it must: the memory is about to go */
    }
    ch_service_unref(attendant->service);
    attendant->service = NULL;
}
