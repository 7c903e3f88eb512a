package preempt

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/serry-dev/serry"
)

// roundsDir holds everything of mode Rounds: below it a folder for each round, with the notices of
// the tasks, and for each attempt at agreeing their steps and whether those were in time.
const roundsDir = "serry/preempt"

func roundKey(round int, parts ...string) string {
	return fmt.Sprintf("%s/%d/%s", roundsDir, round, strings.Join(parts, "/"))
}

func taskPart(t serry.TaskID) string { return t.Job + "-" + strconv.Itoa(t.Index) }

// postRound announces a notice in the round that is to come. Each task's own date is kept, so that a
// later one does not hide an earlier.
func (s *Sync) postRound(ctx context.Context, n Notice) error {
	round, err := s.nextRound(ctx)
	if err != nil {
		return err
	}
	date := []byte(formatTime(n.Deadline))
	if err := s.keys.Put(ctx, roundKey(round, "notice", taskPart(s.member.Task())), date); err != nil {
		return err
	}
	err = s.keys.Create(ctx, roundKey(round, "begun"), date)
	if errors.Is(err, serry.ErrExists) {
		return nil
	}
	return err
}

// nextRound is the number after the last round that has ended.
func (s *Sync) nextRound(ctx context.Context) (int, error) {
	entries, err := s.keys.List(ctx, roundsDir)
	if err != nil {
		return 0, err
	}
	last := 0
	for _, e := range entries {
		_, rest, _ := strings.Cut(e.Key, roundsDir+"/")
		number, what, _ := strings.Cut(rest, "/")
		if n, err := strconv.Atoi(number); err == nil && what == "ended" {
			last = max(last, n)
		}
	}
	return last + 1, nil
}

// agreeInRounds goes through one round after the other. A failed round is over; the next may work.
func (s *Sync) agreeInRounds() error {
	round, err := s.nextRound(s.ctx)
	if err != nil {
		return err
	}
	for ; ; round++ {
		if _, err := s.keys.Wait(s.ctx, roundKey(round, "begun")); err != nil {
			return err
		}
		err := s.agreeInRound(round)
		if s.ctx.Err() != nil {
			return err
		}
		s.tell("round without a sync point", err)
		if err := s.keys.Put(s.ctx, roundKey(round, "ended"), nil); err != nil {
			return err
		}
	}
}

// agreeInRound finds a step that nobody has passed. Steps go on meanwhile: the proposal leaves room
// for Margin of them, and where that was too little the next one leaves twice as much. Who hears of
// a proposal before it has made that step promises not to pass it until all others have answered; so
// a proposal that everybody heard of in time is the agreement.
func (s *Sync) agreeInRound(round int) error {
	deadline, err := s.deadline(round)
	if err != nil {
		return err
	}
	if err := s.untilLead(deadline); err != nil {
		return err
	}
	margin := s.opts.Margin
	for attempt := range maxAttempts {
		part := strconv.Itoa(attempt)
		steps, err := s.share(roundKey(round, "step", part), s.lastStep())
		if err != nil {
			return err
		}
		point := steps + margin
		passed := s.promise(point)
		anybody, err := s.share(roundKey(round, "passed", part), passed)
		if err != nil {
			s.release()
			return err
		}
		if anybody == 0 {
			s.settle(round, point)
			s.release()
			s.opts.Log.Info("sync point agreed", "task", s.member.Task(), "step", point)
			return nil
		}
		s.release()
		margin *= 2
	}
	return fmt.Errorf("steps are made faster than tasks can agree on one, in %d attempts", maxAttempts)
}

// promise lets Reached wait at the proposed step, or says with a 1 that it is too late for that.
func (s *Sync) promise(point int64) (passed int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.last >= point {
		return 1
	}
	s.mu.open, s.mu.from = make(chan struct{}), point
	return 0
}

// maxAttempts bounds a round; the margin of the last attempt is a thousand times the first.
const maxAttempts = 10

// deadline is the earliest date that any task of the round was given.
func (s *Sync) deadline(round int) (earliest time.Time, err error) {
	notices, err := s.keys.List(s.ctx, roundKey(round, "notice"))
	if err != nil {
		return earliest, err
	}
	for i, n := range notices {
		t, err := parseTime(string(n.Value))
		if err != nil {
			return earliest, err
		}
		if i == 0 || t.Before(earliest) {
			earliest = t
		}
	}
	s.announce(Notice{Deadline: earliest, Source: "the job"})
	return earliest, nil
}

// share publishes a number under dir, waits until all have, and returns the highest.
func (s *Sync) share(dir string, mine int64) (int64, error) {
	key := dir + "/" + taskPart(s.member.Task())
	if err := s.keys.Create(s.ctx, key, strconv.AppendInt(nil, mine, 10)); err != nil {
		return 0, err
	}
	if err := s.meet(dir); err != nil {
		return 0, err
	}
	all, err := s.keys.List(s.ctx, dir)
	if err != nil {
		return 0, err
	}
	return highestStep(all)
}

func (s *Sync) lastStep() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.last
}
