package collective

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/plant"
	"github.com/serry-dev/serry/link"
)

// What the host of a meeting does; see meeting.go.

// joined takes the wish of another process to meet.
func (g *Group) joined(l *link.Link, h link.Header, payload []byte) {
	r := reader{rest: payload}
	j := join{attempt: uint32(h.Seq), link: l}
	if left := time.Duration(r.uint64()); left > 0 {
		j.until = time.Now().Add(left)
	}
	j.backend, j.name = r.text(), r.text()
	j.key = bytes.Clone(r.rest)
	g.mu.Lock()
	out := g.receive(l.Peer(), h, j, r.failed)
	g.mu.Unlock()
	g.send(out)
}

// receive admits a process to a meeting, keeps its wish until there is one, or refuses it; mu is held.
func (g *Group) receive(from serry.Life, h link.Header, j join, malformed bool) []frame {
	m := g.mu.meetings[h.Stream]
	switch {
	case malformed || g.mu.closed:
		return []frame{refusal(h, j, "its group is closed", 0)}
	case m != nil && m.host == g.life && !m.ended:
		return g.admit(m, from, j)
	case (m == nil || m.ended) && j.attempt <= g.mu.attempts[h.Stream]:
		return []frame{g.verdict(h, j)}
	case !g.hasRoomFor(from):
		return []frame{refusal(h, j, "too many processes wait for meetings", 0)}
	}
	g.keepEarly(h.Stream, from, j)
	return nil
}

// keepEarly keeps a wish until there is a meeting; mu is held.
func (g *Group) keepEarly(meeting uint64, from serry.Life, j join) {
	if g.mu.early[meeting] == nil {
		g.mu.early[meeting] = make(map[serry.Life]join)
	}
	g.mu.early[meeting][from] = j
}

// formedIn is the clique that was formed in a meeting with a process, or nil; mu is held.
func (g *Group) formedIn(meeting uint64, attempt uint32, with serry.Life) *clique {
	for _, c := range g.mu.streams {
		if c.meeting == meeting && c.attempt == attempt && c.holds(with) {
			return c
		}
	}
	return nil
}

// welcoming is the payload that tells a process that the clique was formed.
func (m *meeting) welcoming() []byte {
	b := binary.LittleEndian.AppendUint64(nil, m.stream)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(m.hosts)))
	for _, h := range m.hosts {
		b = binary.LittleEndian.AppendUint16(b, h)
	}
	return append(b, m.bytes...)
}

// numberHosts numbers the hosts of all that have come, in the order of processes. All members are told the same, so they
// choose the same algorithms (CL-ALG-1).
func (m *meeting) numberHosts() {
	numbers := make(map[string]uint16)
	for _, l := range m.key.Lives() {
		n, ok := numbers[m.names[l]]
		if !ok {
			n = uint16(len(numbers))
			numbers[m.names[l]] = n
		}
		m.hosts = append(m.hosts, n)
	}
}

// verdict tells a process that comes late why the meeting has failed; mu is held. It may have come before, and joins again
// because its link broke on the way of the WELCOME: then the clique ends as well, since the link belongs to it.
func (g *Group) verdict(h link.Header, j join) frame {
	f := refusal(h, j, "the meeting is over", g.mu.attempts[h.Stream])
	if e := g.mu.verdicts[h.Stream]; e != nil {
		f.payload = e.append(nil)
	}
	return f
}

// hasRoomFor says whether a process may wait for one more meeting; mu is held. One process cannot take the room of all.
func (g *Group) hasRoomFor(from serry.Life) bool {
	all, mine := 0, 0
	for _, waiting := range g.mu.early {
		all += len(waiting)
		if _, ok := waiting[from]; ok {
			mine++
		}
	}
	return all < maxEarly && mine < maxEarlyOf
}

// refusal tells a process that it cannot take part. It carries how many meetings of the name there were.
func refusal(h link.Header, j join, why string, attempts uint32) frame {
	e := &Error{Detail: why, Err: ErrCancelled}
	h.Type, h.Class, h.Offset = link.Revoke, link.Control, uint64(attempts)
	return frame{j.link, h, e.append(nil)}
}

// admit takes a process into a meeting of this host; mu is held.
func (g *Group) admit(m *meeting, from serry.Life, j join) []frame {
	ranks := m.key.RanksOf(from)
	h := m.header(link.Revoke)
	h.Seq = uint64(j.attempt)
	switch {
	case len(ranks) == 0:
		return []frame{refusal(h, j, "it is not in the clique", 0)}
	case j.attempt > m.attempt: // it joins the next meeting, so it has given this one up
		g.mu.attempts[m.name] = max(m.attempt, j.attempt-1)
		g.keepEarly(m.name, from, j)
		return g.finish(m, &Error{Origin: m.me, Ranks: ranks, Detail: fmt.Sprintf("%v has given this meeting up", from.Task), Err: ErrCancelled})
	case m.ended || j.attempt < m.attempt:
		return []frame{g.verdict(h, j)}
	case len(j.key) > 0 && !bytes.Equal(j.key, m.bytes): // a newcomer has no key
		g.finish(m, &Error{Origin: m.me, Ranks: ranks, Detail: fmt.Sprintf("%v has another key", from.Task), Err: ErrMismatch})
		return append(g.finished(m), g.verdict(h, j))
	case j.backend != m.backend.Name():
		g.finish(m, &Error{Origin: m.me, Ranks: ranks, Err: ErrMismatch,
			Detail: fmt.Sprintf("%v uses the backend %q, the host %q", from.Task, j.backend, m.backend.Name())})
		return append(g.finished(m), g.verdict(h, j))
	}
	m.arrived[from], m.names[from] = j.link, j.name
	if !j.until.IsZero() && (m.until.IsZero() || j.until.Before(m.until)) {
		m.until = j.until
		if m.timer != nil {
			m.timer.Stop()
		}
		m.timer = time.AfterFunc(time.Until(j.until), func() { g.expire(m) })
	}
	if len(m.missing(g.life)) > 0 {
		return nil
	}
	m.stream = random()
	m.numberHosts()
	if g.opt.Planted.Has(plant.StaleFrames) {
		m.stream = m.lineage
	}
	return g.finish(m, nil)
}

// expire ends a meeting whose time is over, on its host.
func (g *Group) expire(m *meeting) {
	g.mu.Lock()
	missing := m.missing(g.life)
	e := &Error{Origin: m.me, Ranks: missing, Err: ErrTimeout}
	if len(missing) > 0 {
		e.Detail = fmt.Sprintf("%d of %d ranks have come; %s", len(m.key.Ranks)-len(missing), len(m.key.Ranks), g.elsewhere(m, missing))
	}
	out := g.finish(m, e)
	g.mu.Unlock()
	g.send(out)
}

// elsewhere says where the first of the missing is: it may wait for another clique; mu is held.
func (g *Group) elsewhere(m *meeting, missing []int) string {
	life := m.key.Ranks[missing[0]].Life
	for _, waiting := range g.mu.early {
		j, ok := waiting[life]
		if !ok {
			continue
		}
		if key, err := parseKey(j.key); err == nil {
			return fmt.Sprintf("%v waits for the clique %v", life.Task, key)
		}
	}
	return fmt.Sprintf("%v has not come", life.Task)
}
