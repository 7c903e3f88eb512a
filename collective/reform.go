package collective

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/link"
)

// When a clique has lost members, those that are left form the next one of its lineage. They agree, by the service, on
// which tasks are alive and on the generation. The agreement waits for all living tasks of the lineage, and all of them get the same
// answer, whatever each knew of the losses before. Then they meet as for any other clique.
//
// A task of the lineage that was restarted is alive again, so the agreement waits for it, too. Its process has called
// Group.Clique and does not know of the agreement. The members summon it: they send a JOIN with the name of the lineage, and
// its call of Clique takes part in the agreement. It learns the order of ranks from the host of the meeting.

// A lineage is a clique and all that take its place later. It is named by the devices that belong to it, in their order;
// a lost device stays in the list and may come back.
type lineage struct {
	devices []serry.DeviceID
	traffic uint64
}

// name is the same in all processes.
func (l *lineage) name() uint64 {
	h := fnv.New64a()
	binary.Write(h, binary.LittleEndian, l.traffic)
	for _, d := range l.devices {
		binary.Write(h, binary.LittleEndian, int64(d))
	}
	return h.Sum64()
}

const (
	summons    = 1    // step of a JOIN that summons a process
	maxSummons = 1024 // that are remembered

	// nextTime bounds the meeting after an agreement. All have agreed just before: one that does not come is lost, or
	// cannot reach the host, and the next agreement will tell.
	nextTime = 10 * time.Second
)

// Reform forms the clique that takes the place of this one, from all its members that are alive, and returns this
// process's place in it. All of them must call it, at any time after the clique has failed or at an agreed point before.
// The survivors keep their order and come first; processes that were restarted, and have called [Group.Clique] with the
// same devices, follow them (CL-REC-9). If a member is lost meanwhile it begins again without it.
//
// Operations of this clique must have ended when it is called. The clique ends; the caller closes both.
func (c *Comm) Reform(ctx context.Context) (*Comm, error) { return c.Extend(ctx) }

// Extend is Reform with devices that did not belong to the clique before. Their processes call [Group.Clique] with the
// devices of the clique in their first order, followed by these.
func (c *Comm) Extend(ctx context.Context, added ...serry.DeviceID) (*Comm, error) {
	if c.clique.isInDoubt() {
		return nil, fmt.Errorf("the next clique: %w", ErrInDoubt)
	}
	l, err := c.clique.extend(added)
	if err != nil {
		return nil, err
	}
	ctx, cancel := c.group.bounded(ctx)
	defer cancel()
	f, lead := c.clique.nextOf()
	if lead {
		f.clique, f.err = c.group.next(ctx, l, c.clique.key, nil)
		close(f.done)
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		return nil, c.group.gaveUp(ctx, c.rank, nil, "the next clique was not formed")
	}
	if f.err != nil {
		return nil, f.err
	}
	if !lead && !f.clique.hold() {
		return nil, &Error{Origin: c.rank, Detail: "other ranks of this process have closed the next clique", Err: ErrClosed}
	}
	c.clique.revoke(&Error{Origin: c.rank, Detail: "another clique took its place", Err: ErrClosed})
	rank, _ := f.clique.key.Rank(c.clique.key.Ranks[c.rank].Device)
	return f.clique.comms[rank], nil
}

// extend adds devices to the lineage of a clique. It stays extended if the next clique is not formed, so that all members
// name the lineage alike when they try again.
func (c *clique) extend(added []serry.DeviceID) (*lineage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &lineage{devices: slices.Clone(c.mu.lineage.devices), traffic: c.mu.lineage.traffic}
	for _, d := range added {
		if !slices.Contains(l.devices, d) {
			l.devices = append(l.devices, d)
		}
	}
	if _, err := c.group.owners(l.devices); err != nil {
		return nil, err
	}
	c.mu.lineage = l
	return l, nil
}

// Returned lists the devices that belonged to the clique or one before it, are not in it, and whose tasks are connected
// again. Reform can take them in.
func (c *Comm) Returned() (list []serry.DeviceID) {
	c.clique.mu.Lock()
	l := c.clique.mu.lineage
	c.clique.mu.Unlock()
	tasks, err := c.group.owners(l.devices)
	if err != nil {
		return nil
	}
	lives, _, _ := c.group.present(tasks)
	for i, d := range l.devices {
		if _, member := c.clique.key.Rank(d); !member && lives[tasks[i]] != 0 {
			list = append(list, d)
		}
	}
	return list
}

// nextOf is the forming of the clique that takes the place of this one. The first rank of the process that asks for it
// leads it, and the others wait for the outcome; a forming that failed is followed by another.
func (c *clique) nextOf() (f *forming, lead bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.mu.next; f != nil && !f.failed() {
		return f, false
	}
	c.mu.next = &forming{done: make(chan struct{})}
	return c.mu.next, true
}

// failed says whether the forming is over, without a clique.
func (f *forming) failed() bool {
	select {
	case <-f.done:
		return f.err != nil
	default:
		return false
	}
}

// next agrees on the members of the next clique, and meets them. It begins again while members are lost. A newcomer holds no
// key, and was summoned.
func (g *Group) next(ctx context.Context, l *lineage, held *Key, s *summoning) (*clique, error) {
	for {
		m, err := g.settle(ctx, l, held)
		if err != nil {
			return nil, err
		}
		if s != nil {
			g.relyOn(s, m.holders)
		}
		meeting, cancel := context.WithTimeout(ctx, nextTime)
		c, err := g.form(meeting, m, l)
		cancel()
		if err == nil {
			err = g.keep(c)
		}
		switch {
		case err == nil:
			return c, nil
		case ctx.Err() != nil, errors.Is(err, ErrMismatch), errors.Is(err, ErrInvalid), g.ctx.Err() != nil:
			return nil, err
		}
		g.log.Info("clique not formed, members agree again", "err", err)
	}
}

// A succession is what each participant says in the agreement.
type succession struct {
	lineage uint64
	used    uint32 // the greatest generation it has used
	held    uint64 // fingerprint of the key it held, or 0 for a newcomer
	heldGen uint32
}

func (s succession) append(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, s.lineage)
	b = le.AppendUint32(b, s.used)
	b = le.AppendUint64(b, s.held)
	return le.AppendUint32(b, s.heldGen)
}

func parseSuccession(b []byte) (s succession, err error) {
	r := reader{rest: b}
	s = succession{r.uint64(), r.uint32(), r.uint64(), r.uint32()}
	if r.failed {
		err = errMalformed
	}
	return s, err
}

// A participant is a process that agreed.
type participant struct {
	life serry.Life
	succession
}

// settle agrees with the other processes on the members of the next clique, and prepares the meeting.
func (g *Group) settle(ctx context.Context, l *lineage, held *Key) (*meeting, error) {
	if err := g.outOfTime(); err != nil {
		return nil, err
	}
	owners, err := g.owners(l.devices)
	if err != nil {
		return nil, err
	}
	tasks := slices.Clone(owners)
	slices.SortFunc(tasks, serry.TaskID.Compare)
	tasks = slices.Compact(tasks)

	calling, stop := context.WithCancel(ctx)
	defer stop()
	if held != nil {
		g.background(0, func(context.Context) { g.callNewcomers(calling, l, tasks, held) })
	}
	mine := succession{lineage: l.name(), used: g.usedOf(l)}
	if held != nil {
		mine.held, mine.heldGen = held.Fingerprint(), held.Generation
	}
	a, err := g.member.Agree(ctx, mine.append(nil), tasks...)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, g.gaveUp(ctx, 0, nil, "the living tasks of the clique did not agree on the next one")
	case err != nil:
		return nil, fmt.Errorf("agreement on the next clique: %w", err)
	}
	return g.convene(l, owners, held, a)
}

// usedOf is the greatest generation of a lineage that this process has used.
func (g *Group) usedOf(l *lineage) uint32 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.used[l.name()]
}

// convene makes the meeting that an agreement leads to. All participants come to the same.
func (g *Group) convene(l *lineage, owners []serry.TaskID, held *Key, a serry.Agreement) (*meeting, error) {
	all, err := participants(l, a)
	if err != nil {
		return nil, err
	}
	basis := slices.MinFunc(all, func(a, b participant) int {
		return cmp.Or(-cmp.Compare(min(a.held, 1), min(b.held, 1)), -cmp.Compare(a.heldGen, b.heldGen), a.life.Compare(b.life))
	})
	generation := uint32(0)
	for _, p := range all {
		generation = max(generation, p.used, p.heldGen)
	}
	generation++
	g.use(l, generation)

	isHolder := held != nil && held.Fingerprint() == basis.held
	key := &Key{Traffic: l.traffic, Generation: generation}
	if isHolder || basis.held == 0 {
		key.Ranks = survivors(held, all)
	}
	for i, d := range l.devices {
		incarnation, alive := a.Alive[owners[i]]
		if _, there := key.Rank(d); alive && !there {
			key.Ranks = append(key.Ranks, Place{d, serry.Life{Task: owners[i], Incarnation: incarnation}})
		}
	}
	if len(key.RanksOf(g.life)) == 0 {
		return nil, &Error{Detail: fmt.Sprintf("%v is not among those that agreed", g.life.Task), Err: ErrPeerFailed, Life: g.life}
	}
	m := newMeeting(g, key)
	m.host, m.name, m.holders = basis.life, meetingName(l, generation, all), holders(all)
	if !isHolder && basis.held != 0 {
		m.bytes = nil
	}
	return m, nil
}

// holders are the participants that held the clique before, or all if none did.
func holders(all []participant) []serry.Life {
	var lives, holding []serry.Life
	for _, p := range all {
		lives = append(lives, p.life)
		if p.held != 0 {
			holding = append(holding, p.life)
		}
	}
	if holding == nil {
		return lives
	}
	return holding
}

// use notes that this process takes part in a generation of a lineage: it is not summoned to it any more.
func (g *Group) use(l *lineage, generation uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for old := range g.mu.used {
		if len(g.mu.used) < maxSummons {
			break
		}
		delete(g.mu.used, old)
	}
	g.mu.used[l.name()] = generation
	delete(g.mu.summons, l.name())
}

// participants are those who agreed, sorted.
func participants(l *lineage, a serry.Agreement) (all []participant, err error) {
	for task, incarnation := range a.Alive {
		s, err := parseSuccession(a.Words[task])
		if err != nil || s.lineage != l.name() {
			return nil, &Error{Detail: fmt.Sprintf("%v forms another clique of the same tasks", task), Err: ErrMismatch}
		}
		all = append(all, participant{serry.Life{Task: task, Incarnation: incarnation}, s})
	}
	slices.SortFunc(all, func(a, b participant) int { return a.life.Compare(b.life) })
	if len(all) == 0 {
		return nil, &Error{Detail: "no task agreed", Err: ErrPeerFailed}
	}
	return all, nil
}

// survivors are the ranks of a key, which may be nil, whose lives agreed and hold a clique. A life of the key that holds none has
// left it, and comes as a newcomer.
func survivors(held *Key, all []participant) (ranks []Place) {
	if held == nil {
		return nil
	}
	for _, p := range held.Ranks {
		if slices.ContainsFunc(all, func(a participant) bool { return a.life == p.Life && a.held != 0 }) {
			ranks = append(ranks, p)
		}
	}
	return ranks
}

// meetingName is the name of the meeting after an agreement, which all participants compute alike.
func meetingName(l *lineage, generation uint32, all []participant) uint64 {
	h := fnv.New64a()
	binary.Write(h, binary.LittleEndian, l.name())
	binary.Write(h, binary.LittleEndian, generation)
	for _, p := range all {
		h.Write([]byte(p.life.Task.String()))
		binary.Write(h, binary.LittleEndian, uint64(p.life.Incarnation))
	}
	return h.Sum64()
}

// callNewcomers summons the processes that took the place of lost members, also those that come while the agreement
// waits, until it is there. It calls again and again: a process that has links, but no group yet, does not hear. A member may have
// given up the forming of the clique that the others have formed with it; so from the second time on all are called.
func (g *Group) callNewcomers(ctx context.Context, l *lineage, tasks []serry.TaskID, held *Key) {
	again := time.NewTicker(callAgain)
	defer again.Stop()
	for everyone := false; ; {
		lives, changed, _ := g.present(tasks)
		for task, incarnation := range lives {
			life := serry.Life{Task: task, Incarnation: incarnation}
			if life != g.life && (everyone || held.RanksOf(life) == nil) {
				generation := max(held.Generation, g.usedOf(l)) // one that was not formed may be tried again
				g.background(callAgain, func(ctx context.Context) { g.call(ctx, l, generation, life) })
			}
		}
		select {
		case <-changed:
		case <-again.C:
			everyone = true
		case <-ctx.Done():
			return
		}
	}
}

// callAgain is how long a call for a newcomer may take, and when it is called again.
const callAgain = time.Second

// call summons one process.
func (g *Group) call(ctx context.Context, l *lineage, generation uint32, life serry.Life) {
	to, err := g.net.Link(ctx, life)
	if err == nil {
		_, err = to.Post(link.Header{Family: link.Collective, Type: link.Join, Class: link.Control, Stream: l.name(), Generation: generation,
			Step: summons})
	}
	if err != nil {
		g.log.Debug("newcomer not summoned", "peer", life.Task, "err", err)
	}
}

// summonsTime is how long a call of a member holds. Members call every second while they wait; one that has given up its Reform does
// not any more.
const summonsTime = 5 * callAgain

// A summoning is the wish of members of a lineage to form their next clique with this process. The lock of the group guards
// it.
type summoning struct {
	by map[serry.Life]time.Time // those that have called, and until when that holds; after an agreement, those that hold the clique
}

// isBy says whether one of the tasks has called: a process of another task has no say.
func (s *summoning) isBy(tasks []serry.TaskID) bool {
	for life := range s.by {
		if slices.Contains(tasks, life.Task) {
			return true
		}
	}
	return false
}

// errLapsed says that all members that have summoned this process are lost, or have given up. Those that are left have no clique: they meet
// like processes that form the first one.
var errLapsed = errors.New("the members that formed the next clique are lost, or have given up")

// answer takes part in the next clique of a lineage, as long as one of those lives, and waits, that called this process.
func (g *Group) answer(ctx context.Context, l *lineage, s *summoning) (*clique, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	g.background(0, func(context.Context) { g.awaitLapse(ctx, l, s, stop) })
	c, err := g.next(ctx, l, nil, s)
	if err == nil || !errors.Is(context.Cause(ctx), errLapsed) {
		return c, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.summons[l.name()] == s {
		delete(g.mu.summons, l.name())
	}
	return nil, errLapsed
}

// relyOn notes which members hold the clique: they have agreed, whether or not their calls came.
func (g *Group) relyOn(s *summoning, holders []serry.Life) {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(s.by)
	for _, life := range holders { // they call again if the meeting fails
		s.by[life] = time.Now().Add(nextTime + summonsTime)
	}
	g.announce()
}

// awaitLapse calls stop when all members that have called are lost, or do not call any more.
func (g *Group) awaitLapse(ctx context.Context, l *lineage, s *summoning, stop context.CancelCauseFunc) {
	tasks, _ := g.owners(l.devices)
	lapse := time.NewTimer(summonsTime)
	defer lapse.Stop()
	for {
		g.mu.Lock()
		left := time.Until(g.holdsUntil(s, tasks))
		changed := g.mu.changed
		g.mu.Unlock()
		if left <= 0 {
			stop(errLapsed)
			return
		}
		lapse.Reset(left)
		select {
		case <-changed:
		case <-lapse.C:
		case <-ctx.Done():
			return
		}
	}
}

// holdsUntil is until when a summons holds, by those of its callers that live, or zero; mu is held. Where the service does not tell, all live.
func (g *Group) holdsUntil(s *summoning, tasks []serry.TaskID) (until time.Time) {
	for life, at := range s.by {
		t := g.mu.tasks[life.Task]
		lives := g.mu.tasks == nil || t.State == serry.Connected && t.Incarnation == life.Incarnation
		if lives && slices.Contains(tasks, life.Task) && at.After(until) {
			until = at
		}
	}
	return until
}

// maxCallers bounds how many of those that have called are known. Members of one clique never reach it.
const maxCallers = 1 << 12

// seek notes that a caller waits for a clique of a lineage, until the result is called.
func (g *Group) seek(l *lineage) (found func()) {
	name := l.name()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.seeking[name]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.mu.seeking[name]--; g.mu.seeking[name] == 0 {
			delete(g.mu.seeking, name)
		}
	}
}

// summon takes the word that the members of a lineage form their next clique, and wait for this process.
// Calls of lives that are over are ignored, and so are those of an earlier generation than this process has used, because they come
// late. But a process that waits for a clique takes them: the caller may have missed the agreement of that generation.
func (g *Group) summon(from serry.Life, name uint64, generation uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.used[name] > generation && g.mu.seeking[name] == 0 || g.mu.past[from] != nil {
		return
	}
	until := time.Now().Add(summonsTime)
	if s := g.mu.summons[name]; s != nil {
		// Only a new caller is a change. Members that wait for changes call all others at each of them: two that took every
		// call for one would call each other without end.
		switch before, known := s.by[from]; {
		case known && until.After(before):
			s.by[from] = until
		case !known && len(s.by) < maxCallers:
			s.by[from] = until
			g.announce()
			g.endSummoned(name)
		}
		return
	}
	for old := range g.mu.summons {
		if len(g.mu.summons) < maxSummons {
			break
		}
		delete(g.mu.summons, old)
	}
	g.mu.summons[name] = &summoning{by: map[serry.Life]time.Time{from: until}}
	g.announce()
	g.endSummoned(name)
}

// endSummoned ends the meetings for the first clique of a lineage whose members form the next one; mu is held.
func (g *Group) endSummoned(lineage uint64) {
	for _, m := range g.mu.meetings {
		if m.lineage == lineage && !m.ended && g.isSummoned(m) {
			m.called = true
			g.finish(m, m.summoned())
		}
	}
}

// isSummoned says whether a meeting is for the first clique of a lineage, and members of it form the next one; mu is held.
func (g *Group) isSummoned(m *meeting) bool {
	s := g.mu.summons[m.lineage]
	return s != nil && m.key.Generation == 0 && s.isBy(mapped(m.key.Ranks, func(p Place) serry.TaskID { return p.Life.Task }))
}

// summoned is the end of a meeting whose other processes form the next clique of the lineage.
func (m *meeting) summoned() *Error {
	return &Error{Origin: m.me, Detail: "the others form the next clique", Err: ErrCancelled}
}

// summoned is the wish of others that this process takes part in their next clique, or nil.
func (g *Group) summoned(l *lineage) *summoning {
	tasks, _ := g.owners(l.devices)
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.mu.summons[l.name()]; s != nil && s.isBy(tasks) {
		return s
	}
	return nil
}
