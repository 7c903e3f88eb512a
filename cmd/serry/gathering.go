package main

import (
	"context"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/preempt"
	"github.com/serry-dev/serry/wire"
)

// Commands and the page judge the same evidence, so that they say the same of a job. It is gathered here, without a look at processes.

// wholeEvidence asks a service for all that a verdict on its job rests on. It asks where ranks were last heard only if that is of use, and
// fails where records of preemptions cannot be read.
func (r *remote) wholeEvidence(ctx context.Context) (diagnose.Evidence, error) {
	s, err := r.status(ctx, wire.StatusQuery{Tasks: true, Calls: true})
	if err == nil && diagnose.WantsSight(s) {
		s, err = r.status(ctx, wire.StatusQuery{Tasks: true, Calls: true, Sight: true})
	}
	if err != nil {
		return diagnose.Evidence{}, err
	}
	e, unread := r.beside(ctx, s)
	return e, unread
}

// evidence is the same for a view, which asks again and again: it always has where ranks were last heard, and a view shows the rest where
// records of preemptions cannot be read.
func (r *remote) evidence(ctx context.Context) (diagnose.Evidence, error) {
	s, err := r.status(ctx, wire.StatusQuery{Tasks: true, Sight: true, Calls: true})
	if err != nil {
		return diagnose.Evidence{}, err
	}
	e, _ := r.beside(ctx, s)
	return e, nil
}

// beside is a status with what else is known: records of preemptions, what the launcher says, and which rank offers which address, if a
// failure names one. The error says why there are no records.
func (r *remote) beside(ctx context.Context, s wire.Status) (e diagnose.Evidence, unread error) {
	e = diagnose.Evidence{Status: s, Hang: r.hang(ctx)}
	e.Saves, unread = preempt.ReadRecords(ctx, r)
	if f := s.First; f != nil && diagnose.HasPeer(f.Evidence) {
		if keys, err := r.List(ctx, diagnose.GlooKeys); err == nil {
			e.Peers = diagnose.ReadPeers(keys)
		}
	}
	return e, unread
}

// hang is what the launcher of the job has told the service about ranks that keep the others waiting, or nil.
func (r *remote) hang(ctx context.Context) *diagnose.HangReport {
	v, err := result[coord.Value](r.call(ctx, coord.TryGetKeyValue{Key: diagnose.HangKey}))
	if err != nil {
		return nil // there is none
	}
	h, err := diagnose.ReadHang(v.Value)
	if err != nil {
		return nil // of another version
	}
	return h
}
