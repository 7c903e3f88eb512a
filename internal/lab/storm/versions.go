package storm

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/store"
)

// One in so many fleets is upgraded while the job runs: its servers begin with the present version of the
// journal and are restarted with the next one, each at a time of its own, among the other faults. A server
// may be restarted with the present version again. As long as no server of the next version has led, nothing
// is different then. Later such a server must refuse the journal, say so, and campaign no more.
//
// Quiet fleets are not upgraded, because they judge how soon another server leads.
const rollingFleets = 10

// Kinds of faults that only such fleets have.
const (
	upgrade  kind = "upgrade"       // of a server to the next version
	goBack   kind = "go back"       // of a server to the present version; no server of the next one has led
	lateBack kind = "go back late"  // of a server to the present version; one of the next version has led
	barred   kind = "newer journal" // was refused by a server of the present version
)

// versionFaults are the kinds of faults of such fleets, for reports.
var versionFaults = []kind{upgrade, goBack, lateBack, barred}

// shortOutage bounds how long a leader of such a fleet is frozen: the others may be servers that cannot lead.
const shortOutage = 2500 * time.Millisecond

// drawUpgrade adds the upgrade of all servers to a plan.
func (p *plan) drawUpgrade(r *rand.Rand) {
	p.rolls = true
	for i := range p.faults {
		if f := &p.faults[i]; f.kind == freeze {
			f.lasts = min(f.lasts, shortOutage)
		}
	}
	add := func(k kind, site int) {
		f := p.drawFault(r, []kind{k})
		f.whom, f.lasts = site, between(r, 10*time.Millisecond, 500*time.Millisecond)
		p.faults = append(p.faults, f)
	}
	for site := range p.sites {
		add(upgrade, site)
	}
	for range 1 + r.IntN(3) {
		add(goBack, r.IntN(p.sites))
	}
}

// versions is what a world knows of the versions of its servers. The lock of the world guards it.
type versions struct {
	next    []bool // by site: the next version is installed
	elected bool   // a server of the next version has been elected, and may have written

	// Terms in which records were written: the first of the next version, the last of the present one.
	firstNext, lastPresent uint64
}

// install puts a version onto a site, and restarts its server in order.
func (w *world) install(f fault) {
	s := w.sites[f.whom]
	w.mu.Lock()
	w.mu.versions.next[f.whom] = f.kind == upgrade
	w.mu.Unlock()
	w.note("%s: %s", s.place.name, f.kind)
	p := s.running()
	switch {
	case p == nil: // it is down, and comes back with the other version
	case p.node != nil:
		s.terminate(f.lasts)
	default:
		p.handOver()
		s.kill(f.lasts, string(f.kind))
	}
}

// installed says whether a process that starts at a site is of the next version. After one of those was
// elected the servers of the present version may be unable to lead. Then the last site with the next version
// keeps it: else the job would have no server left, which is a mistake of its operator.
func (w *world) installed(s *site) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := &w.mu.versions
	at := slices.Index(w.sites, s)
	if v.elected && !slices.Contains(v.next, true) {
		v.next[at] = true
	}
	return v.next[at]
}

// versioned prepares a process of a fleet that is upgraded.
func (p *process) versioned(earlier *process) {
	w := p.site.world
	p.next = w.installed(p.site)
	p.seat = &rollingSeat{p.seat, p}
	switch {
	case earlier == nil || p.next == earlier.next:
	case p.next:
		w.struck(upgrade)
	case w.nextElected():
		w.struck(lateBack)
	default:
		w.struck(goBack)
	}
}

func (w *world) nextElected() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.versions.elected
}

// refuses notes that the process cannot lead because of the version of the journal, if err says so.
func (p *process) refuses(err error) bool {
	ve, ok := errors.AsType[*coord.VersionError](err)
	if !ok {
		return false
	}
	w := p.site.world
	switch {
	case p.next:
		w.wrong("%s is of the next version, and cannot read the journal: %v", p.site.place.name, err)
	case ve.Version != coord.Version+1 || !w.nextElected():
		w.wrong("%s cannot read the journal, and no server of the next version has led: %v", p.site.place.name, err)
	}
	w.struck(barred)
	w.note("%s leads no more: %v", p.site.place.name, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.barred = true
	return true
}

// A rollingSeat is the store of a server in a fleet that is upgraded.
type rollingSeat struct {
	seat
	process *process
}

// Campaign implements store.Store.
func (s *rollingSeat) Campaign(ctx context.Context, who store.Candidate) (store.Reign, error) {
	p, w := s.process, s.process.site.world
	p.mu.Lock()
	barred := p.barred
	p.mu.Unlock()
	if barred {
		w.wrong("%s campaigns again after it has refused the journal", who.Address)
	}
	r, err := s.seat.Campaign(ctx, who)
	if err != nil {
		return nil, err
	}
	if p.next {
		w.mu.Lock()
		w.mu.versions.elected = true
		w.mu.Unlock()
	}
	reign := &rollingReign{r, p}
	if l, ok := r.(store.Limited); ok {
		return struct {
			*rollingReign
			store.Limited
		}{reign, l}, nil
	}
	return reign, nil
}

// A rollingReign is a reign of such a server.
type rollingReign struct {
	store.Reign
	process *process
}

// Append implements store.Reign. No server of the present version may write in a term after one in which a
// server of the next version has written: it would have read what it cannot know.
func (r *rollingReign) Append(ctx context.Context, batch []byte) error {
	err := r.Reign.Append(ctx, batch)
	if err != nil {
		return err
	}
	w, term := r.process.site.world, r.Term()
	w.mu.Lock()
	v := &w.mu.versions
	if r.process.next && (v.firstNext == 0 || term < v.firstNext) {
		v.firstNext = term
	}
	if !r.process.next {
		v.lastPresent = max(v.lastPresent, term)
	}
	first, last := v.firstNext, v.lastPresent
	w.mu.Unlock()
	if first != 0 && last > first {
		w.wrong("a server of the present version wrote in term %d, and one of the next version had written in term %d", last, first)
	}
	return nil
}
