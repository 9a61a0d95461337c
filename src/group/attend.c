/*
 * attend.c - see attend.h.
 */
#include "group/attend.h"

#include "base/error.h"
#include "base/forked.h"
#include "base/log.h"
#include "base/sys.h"
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

/* A turn for everybody: what is left in the most pressing case, and when to look again at the latest. */
static enum ch_turn give_turns(struct ch_attendant *attendant, ch_deadline *next_out)
{
    enum ch_turn most = CH_TURN_NOTHING;

    *next_out = CH_NEVER;
    CH_LIST_EACH (link, &attendant->groups) {
        choir_group *group = CH_CONTAINER(link, choir_group, attended);
        enum ch_turn left;

        ch_lock(&attendant->lock);
        group->kicked = false;
        ch_unlock(&attendant->lock);
        left = ch_group_turn(group, next_out);
        most = left > most ? left : most;
        if (left == CH_TURN_NOTHING)
            let_go(attendant, group);
    }
    return most;
}

/* A turn for everybody, asleep or not as it then has to be. */
static enum ch_turn give_turns_seated(struct ch_attendant *attendant, ch_deadline *next_out)
{
    enum ch_turn left = give_turns(attendant, next_out);

    if (left != CH_TURN_WAITS) {
        stand_up(attendant);
    } else if (attendant->seat < 0) {
        if (sit_down(attendant))
            left = give_turns(attendant, next_out); /* what came before it sat rang nobody */
        else
            *next_out = ch_deadline_ms(NAP_MS);
    }
    return left;
}

/* Who kicks from here on is seen: how many have so far. */
static uint64_t take_over(struct ch_attendant *attendant)
{
    struct ch_list *link;
    uint64_t nkicks;

    ch_lock(&attendant->lock);
    while ((link = ch_list_pop_front(&attendant->due)) != NULL)
        ch_list_push_back(&attendant->groups, link);
    nkicks = attendant->nkicks;
    ch_unlock(&attendant->lock);
    return nkicks;
}

static void look(struct ch_attendant *attendant)
{
    struct ch_timers *timers = ch_loop_timers(ch_service_loop(attendant->service));
    uint64_t nkicks = take_over(attendant);
    ch_deadline next, soon;
    enum ch_turn left = give_turns_seated(attendant, &next);
    bool coming;

    /* Who kicked meanwhile counts on us, as does who does for as long as we come by ourselves. */
    ch_lock(&attendant->lock);
    attendant->coming = coming = left == CH_TURN_YOUNG || attendant->nkicks != nkicks;
    ch_unlock(&attendant->lock);
    soon = ch_now() + CH_ATTEND_AFTER_NS;
    if (coming && soon < next)
        next = soon;
    if (next != CH_NEVER)
        ch_timer_start(timers, &attendant->timer, next);
    else
        ch_timer_stop(&attendant->timer);
}

static void alarm_rings(struct ch_watch *watch, uint32_t events)
{
    struct ch_attendant *attendant = CH_CONTAINER(watch, struct ch_attendant, alarm_watch);
    uint64_t times;

    (void)events;
    (void)!ch_sys_read(watch->fd, &times, sizeof(times));
    look(attendant);
}

/* If it cannot be had, whoever kicks wakes us at once. */
static void make_alarm(struct ch_attendant *attendant)
{
    int fd = ch_sys_timerfd();

    if (fd >= 0 && ch_watch_add(ch_service_loop(attendant->service), &attendant->alarm_watch, fd,
                                EPOLLIN, alarm_rings) != CHOIR_OK) {
        ch_sys_close(fd);
        fd = -1;
    }
    ch_lock(&attendant->lock);
    attendant->alarm = fd;
    ch_unlock(&attendant->lock);
}

static void come_at_once(struct ch_task *task)
{
    struct ch_attendant *attendant = CH_CONTAINER(task, struct ch_attendant, task);
    bool has_alarm;

    ch_lock(&attendant->lock);
    attendant->posted = false;
    has_alarm = attendant->alarm >= 0;
    ch_unlock(&attendant->lock);
    if (!has_alarm)
        make_alarm(attendant);
    look(attendant);
}

static void stop(struct ch_task *task)
{
    struct ch_attendant *attendant = CH_CONTAINER(task, struct ch_attendant, stop_task);
    struct ch_list *link;

    (void)take_over(attendant);
    stand_up(attendant);
    ch_timer_stop(&attendant->timer);
    ch_watch_remove(&attendant->alarm_watch);
    ch_sys_close(attendant->alarm);
    attendant->alarm = -1;
    while ((link = ch_list_pop_front(&attendant->groups)) != NULL)
        ch_group_unref(CH_CONTAINER(link, choir_group, attended));
    ch_post(&attendant->waiter->bell, &attendant->stopped, 1);
}

/* --- everybody else's ----------------------------------------------------------------------------- */

/* Have the service thread look: by the alarm, or at once. False in a forked child, where there is none. */
static bool call_in_locked(struct ch_attendant *attendant)
{
    ch_lock_assert_held(&attendant->lock);
    if (ch_is_forked())
        return false;
    if (attendant->alarm >= 0 && ch_sys_timerfd_set(attendant->alarm, CH_ATTEND_AFTER_NS) == 0)
        return true;
    if (!attendant->posted)
        attendant->posted = ch_service_post(attendant->service, &attendant->task) == CHOIR_OK;
    return attendant->posted;
}

void ch_attend_kick(struct ch_attendant *attendant, choir_group *group)
{
    if (attendant->service == NULL)
        return;
    ch_lock(&attendant->lock);
    group->kicked = true;
    attendant->nkicks++;
    if (!group->in_attendance) {
        group->in_attendance = true;
        ch_group_ref(group);
        ch_list_push_back(&attendant->due, &group->attended);
    }
    /* Under the lock: the service thread may be quick, and what it would look at must be there. */
    if (!attendant->coming)
        attendant->coming = call_in_locked(attendant);
    ch_unlock(&attendant->lock);
}

choir_status ch_attend_init(struct ch_attendant *attendant, struct ch_waiter *waiter,
                            bool has_service)
{
    attendant->waiter = waiter;
    attendant->seat = attendant->alarm = -1;
    attendant->task.run = come_at_once;
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
