package collective_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/memory"
)

// sendTo sends frames of cliques from one process to another, past the group of the sender.
func (p *process) sendTo(to *process, h link.Header, payload ...byte) {
	p.world.t.Helper()
	l, err := p.net.Link(p.world.t.Context(), to.life)
	if err != nil {
		p.world.t.Fatalf("Link(%v) = %v", to.life, err)
	}
	h.Family = link.Collective
	if _, err := l.Post(h, payload); err != nil && !errors.Is(err, link.ErrCongested) {
		p.world.t.Fatalf("Post(%+v) = %v", h, err)
	}
}

// keyOf is the key of the first clique of processes.
func keyOf(procs ...*process) *collective.Key {
	k := new(collective.Key)
	for _, p := range procs {
		k.Ranks = append(k.Ranks, collective.Place{Device: serry.DeviceID(p.life.Task.Index), Life: p.life})
	}
	return k
}

// lineageName is the name by which members summon a process to the next clique of devices.
func lineageName(devices []serry.DeviceID) uint64 {
	h := fnv.New64a()
	binary.Write(h, binary.LittleEndian, uint64(0))
	for _, d := range devices {
		binary.Write(h, binary.LittleEndian, int64(d))
	}
	return h.Sum64()
}

// joinPayload is the payload of a JOIN.
func joinPayload(key []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(time.Minute))
	b = append(b, 4, 0, 'h', 'o', 's', 't', 1, 0, 'x')
	return append(b, key...)
}

// soon forms the clique of processes, which must not take long.
func (w *world) soon(procs []*process, devices []serry.DeviceID, o collective.CliqueOptions) []*collective.Comm {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	comms := make([]*collective.Comm, len(procs))
	errs := each(procs, func(i int, p *process) (err error) {
		comms[i], err = p.Clique(ctx, devices, o)
		return err
	})
	if err := errors.Join(errs...); err != nil {
		w.t.Fatalf("Clique(%v) = %v", devices, err)
	}
	return comms
}

// A process that is not in a clique joins, ends or welcomes its meeting: the members do not care.
func TestStrangerAtMeeting(t *testing.T) {
	clause.Cite(t, "CL-RDV-1", "CL-KEY-13")
	for _, early := range []bool{false, true} {
		for _, attempt := range []uint64{0, 1, 2, 1 << 31} {
			inBubble(t, func(t *testing.T, w *world) {
				procs := w.startAll(3)
				members, stranger := procs[:2], procs[2]
				name := keyOf(members...).Fingerprint()
				bother := func() {
					for _, to := range members {
						for _, key := range [][]byte{nil, keyOf(members...).Bytes(), keyOf(procs...).Bytes()} {
							stranger.sendTo(to, link.Header{Type: link.Join, Stream: name, Seq: attempt}, joinPayload(key)...)
						}
						stranger.sendTo(to, link.Header{Type: link.Welcome, Stream: name, Seq: attempt}, append(make([]byte, 10), keyOf(members...).Bytes()...)...)
						gone := &collective.Error{Err: collective.ErrCancelled, Detail: "go away"}
						stranger.sendTo(to, link.Header{Type: link.Revoke, Stream: name, Seq: attempt, Offset: 9}, gone.Bytes()...)
					}
					synctest.Wait()
				}
				if early {
					bother()
				}
				formed := make(chan error, 1)
				go func() {
					_, err := members[0].Clique(t.Context(), devices(2), collective.CliqueOptions{})
					formed <- err
				}()
				synctest.Wait() // the host waits for the other member
				if !early {
					bother()
				}
				works(t, w.soon(members, devices(2), collective.CliqueOptions{}), 100)
				if err := <-formed; err != nil {
					t.Errorf("early %v, attempt %d: Clique() = %v", early, attempt, err)
				}
			})
		}
	}
}

// A process that is not in a lineage says that its members form the next clique: those that form the first one do not
// believe it.
func TestStrangerSummons(t *testing.T) {
	clause.Cite(t, "CL-REC-9", "CL-DES-7")
	for _, early := range []bool{false, true} {
		inBubble(t, func(t *testing.T, w *world) {
			procs := w.startAll(3)
			summon := func() {
				procs[2].sendTo(procs[0], link.Header{Type: link.Join, Step: 1, Stream: lineageName(devices(2)), Generation: 3})
				synctest.Wait()
			}
			if early {
				summon()
			} else {
				time.AfterFunc(time.Second, summon)
			}
			formed := make(chan error, 1)
			go func() {
				_, err := procs[0].Clique(t.Context(), devices(2), collective.CliqueOptions{})
				formed <- err
			}()
			time.Sleep(2 * time.Second)
			works(t, w.soon(procs[:2], devices(2), collective.CliqueOptions{}), 100)
			if err := <-formed; err != nil {
				t.Errorf("Clique() = %v", err)
			}
		})
	}
}

// A process that fills the tables of another one for cliques that are not known yet leaves room for the members of real ones.
func TestStrangerFillsTables(t *testing.T) {
	clause.Cite(t, "CL-TRN-27", "CL-RDV-1", "CL-OP-22")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(3)
		bother := func() {
			for i := range uint64(5000) {
				procs[2].sendTo(procs[0], link.Header{Type: link.Join, Stream: 1000 + i, Seq: 1}, joinPayload(nil)...)
				procs[2].sendTo(procs[0], link.Header{Type: link.OneSided, Stream: 1000 + i, Step: 1, Seq: 1}, make([]byte, 4)...)
				if i%100 == 0 {
					synctest.Wait()
				}
			}
		}
		bother()
		var host *collective.Comm
		time.AfterFunc(5*time.Second, func() { // the other member has joined before
			bother()
			host, _ = procs[0].Clique(t.Context(), devices(2), collective.CliqueOptions{})
		})
		other, err := procs[1].Clique(t.Context(), devices(2), collective.CliqueOptions{})
		if err != nil {
			t.Fatalf("Clique() = %v", err)
		}
		if err := other.Do(t.Context(), collective.Signal{To: 0, ID: 3}); err != nil { // maybe before the other process knows the clique
			t.Fatalf("Signal() = %v", err)
		}
		synctest.Wait()
		if err := host.Do(t.Context(), waitFor(1, 3, 1)); err != nil {
			t.Errorf("WaitSignal() = %v", err)
		}
		works(t, []*collective.Comm{host, other}, 1000)
	})
}

// kinds are all types of frames of cliques but data.
var kinds = []link.Type{link.OpDesc, link.Revoke, link.Join, link.Welcome, link.Leave, link.OneSided, 5, 6}

// bother sends frames with payloads of any kind, about cliques and meetings that exist and others.
func bother(r *rand.Rand, from, to *process, names []uint64, n int) {
	payloads := [][]byte{
		(&collective.Error{Err: collective.ErrPeerFailed, Life: from.life}).Bytes(),
		(&collective.Error{Err: collective.ErrTransport, Origin: 1, Ranks: []int{0, 1, 60_000}}).Bytes(),
		(&collective.Error{Err: collective.ErrClosed, Origin: 60_000}).Bytes(),
		joinPayload(nil), joinPayload(keyOf(from, to).Bytes()), {1, 0, 0, 0}, nil,
	}
	for range n {
		payload := bytes.Clone(payloads[r.IntN(len(payloads))])
		for range r.IntN(3) {
			payload = append(payload, byte(r.Uint32()))
		}
		if len(payload) > 0 && r.IntN(2) == 0 {
			payload[r.IntN(len(payload))] = byte(r.Uint32())
		}
		h := link.Header{Type: kinds[r.IntN(len(kinds))], Stream: names[r.IntN(len(names))], Step: r.Uint32N(4), Seq: r.Uint64N(4)}
		if r.IntN(4) == 0 {
			h.Step, h.Seq, h.Generation, h.Offset = r.Uint32(), r.Uint64(), r.Uint32(), r.Uint64()
		}
		from.sendTo(to, h, payload...)
	}
}

// Frames of any kind of a process that is not in a clique leave it as it is, while it works, when it is re-formed, and after
// its end.
func TestFramesOfStrangers(t *testing.T) {
	clause.Cite(t, "CL-TRN-27", "CL-KEY-16", "CL-ABT-16")
	for seed := range uint64(12) {
		inBubble(t, func(t *testing.T, w *world) {
			procs := w.startAll(3)
			r := rand.New(rand.NewPCG(seed, 5))
			comms := w.clique(procs[:2], devices(2))
			names := []uint64{comms[0].Stream(), keyOf(procs[:2]...).Fingerprint(), lineageName(devices(2)), lineageName(devices(3)), 77}
			both := func() {
				bother(r, procs[2], procs[0], names, 60)
				bother(r, procs[2], procs[1], names, 60)
				synctest.Wait()
			}
			for range 3 {
				both()
				works(t, comms, 5000)
			}
			next := make([]*collective.Comm, 2)
			errs := each(comms, func(i int, c *collective.Comm) (err error) {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				next[i], err = c.Reform(ctx)
				return err
			})
			if err := errors.Join(errs...); err != nil {
				t.Fatalf("seed %d: Reform() = %v", seed, err)
			}
			both()
			works(t, next, 5000)
			if errs := each(procs[:2], func(_ int, p *process) error { return p.Group.Close(t.Context()) }); errors.Join(errs...) != nil {
				t.Errorf("seed %d: Close() = %v", seed, errs)
			}
			both()
		})
	}
}

// Frames of any kind of a member: the clique goes on, or ends with an error that has a type and blames ranks that there are;
// no call waits for ever, and the next clique works.
func TestFramesOfMembers(t *testing.T) {
	clause.Cite(t, "CL-ERR-7", "CL-ERR-9", "CL-TRN-27")
	for seed := range uint64(40) {
		inBubble(t, func(t *testing.T, w *world) {
			procs := w.startAll(3)
			r := rand.New(rand.NewPCG(seed, 6))
			comms := w.clique(procs, devices(3))
			names := []uint64{comms[0].Stream(), comms[0].Stream(), keyOf(procs...).Fingerprint(), 77}
			errs := each(comms, func(i int, c *collective.Comm) error {
				for range 20 {
					if i == 2 {
						bother(r, procs[2], procs[r.IntN(2)], names, 3)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					err := c.Do(ctx, sum(make([]byte, 900), make([]byte, 900)))
					cancel()
					if err != nil {
						return err
					}
				}
				return nil
			})
			for i, err := range errs {
				if err == nil {
					continue
				}
				e := failure(t, err)
				for _, rank := range append(e.Ranks, e.Origin) {
					if rank >= 3 {
						t.Errorf("seed %d: rank %d gets %v, which names rank %d", seed, i, err, rank)
					}
				}
				if errors.Is(e, collective.ErrPeerFailed) && (len(e.Ranks) != 1 || comms[0].Key().Ranks[e.Ranks[0]].Life != e.Life) {
					t.Errorf("seed %d: rank %d gets %v, whose life and rank differ: %+v", seed, i, err, e)
				}
			}
			works(t, w.soon(procs, devices(3), collective.CliqueOptions{Traffic: 1}), 5000)
		})
	}
}

// A member that is told it may leave, and has not asked, still hears of the loss of the one that said so.
func TestLeaveThatWasNotAskedFor(t *testing.T) {
	clause.Cite(t, "CL-DES-7", "CL-HLT-5")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(3)
		comms := w.clique(procs, devices(3))
		synctest.Wait()
		for _, to := range procs[:2] {
			procs[2].sendTo(to, link.Header{Type: link.Leave, Class: link.Urgent, Stream: comms[0].Stream(), Step: 1})
		}
		synctest.Wait()
		w.kill(procs[2])
		time.Sleep(time.Second)
		for r, c := range comms[:2] {
			if err := c.Err(); !errors.Is(err, collective.ErrPeerFailed) {
				t.Errorf("rank %d: the clique lost a member, and has the error %v", r, err)
			}
		}
	})
}

// A message that is longer or shorter than it must be ends the clique on all members; nothing is written outside of the
// output.
func TestLengthsThatLie(t *testing.T) {
	clause.Cite(t, "CL-ERR-6", "CL-ERR-9", "CL-ABT-17")
	for _, want := range []int{100, 30_000} {
		for _, sent := range []int{0, 1, want - 1, want + 1, 2 * want} {
			for _, late := range []bool{false, true} {
				inBubble(t, func(t *testing.T, w *world) {
					procs := w.startAll(3)
					comms := w.clique(procs, devices(3))
					mem := fill(want+32, 1)
					op := collective.Recv{Out: memory.Of(mem[16 : 16+want]), Count: int64(want), Type: memory.U8, From: 1}
					h := collective.NextName(comms[0], op, 1, true)
					lie := func() {
						l, err := procs[1].net.Link(t.Context(), procs[0].life)
						if err != nil {
							t.Error(err)
							return
						}
						if ticket, err := l.Post(h, make([]byte, sent)); err == nil {
							go ticket.Wait(t.Context())
						}
					}
					if late {
						time.AfterFunc(time.Second, lie)
					} else {
						lie()
						synctest.Wait()
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					err := comms[0].Do(ctx, op)
					failure(t, err)
					for r, c := range comms {
						synctest.Wait()
						if err := c.Do(t.Context(), collective.Barrier{}); err == nil || c.Err() == nil {
							t.Errorf("%d of %d bytes, late %v: rank %d goes on", sent, want, late, r)
						}
					}
					if !bytes.Equal(mem[:16], fill(16, 1)) || !bytes.Equal(mem[16+want:], fill(want+32, 1)[16+want:]) {
						t.Errorf("%d of %d bytes, late %v: memory outside of the output was written", sent, want, late)
					}
				})
			}
		}
	}
}

// Ranks of one process that disagree are told, whatever the operation, as those of several processes are.
func TestMismatchInsideAProcess(t *testing.T) {
	clause.Cite(t, "CL-OP-6", "CL-ORD-12", "CL-OP-18", "CLT-TMO-8")
	b := func() memory.Region { return memory.Of(make([]byte, 100_000)) }
	gather := func(n int64, dt memory.DType) collective.Op {
		return collective.AllGather{In: b(), Out: b(), Count: n, Type: dt}
	}
	for name, ops := range map[string][2]collective.Op{
		"count":     {gather(10, memory.U8), gather(11, memory.U8)},
		"type":      {gather(10, memory.U8), gather(10, memory.S8)},
		"operation": {gather(10, memory.U8), collective.AllToAll{In: b(), Out: b(), Count: 10, Type: memory.U8}},
		"root":      {collective.Broadcast{In: b(), Out: b(), Count: 10, Type: memory.U8}, collective.Broadcast{In: b(), Out: b(), Count: 10, Type: memory.U8, Root: 1}},
		"pairs": {collective.Permute{In: b(), Out: b(), Count: 10, Type: memory.U8, Pairs: [][2]int{{0, 1}}},
			collective.Permute{In: b(), Out: b(), Count: 10, Type: memory.U8, Pairs: [][2]int{{1, 0}}}},
		"transfer": {collective.Send{In: b(), Count: 10, Type: memory.U8, To: 1}, collective.Recv{Out: b(), Count: 11, Type: memory.U8, From: 0}},
		"type of a transfer": {collective.Send{In: b(), Count: 9000, Type: memory.F32, To: 1},
			collective.Recv{Out: b(), Count: 9000, Type: memory.S32, From: 0}},
	} {
		for _, late := range []int{-1, 0, 1} {
			inBubble(t, func(t *testing.T, w *world) {
				comms := ranksOf(w.clique([]*process{one(w, 2)}, devices(2)))
				began := time.Now()
				errs := each(comms, func(r int, c *collective.Comm) error {
					if r == late {
						time.Sleep(time.Second)
					}
					if err := c.Do(t.Context(), ops[r]); err != nil {
						return err
					}
					return c.Do(t.Context(), collective.Barrier{})
				})
				for r, err := range errs {
					if !errors.Is(err, collective.ErrMismatch) || time.Since(began) > 2*time.Second {
						t.Errorf("%s, rank %d late: rank %d gets %v after %v; want a mismatch", name, late, r, err, time.Since(began))
					}
				}
			})
		}
	}
}

// A clique is revoked while its operations end: each gets the right data or the error, and then its memory is quiet.
func TestRevokeWhileOperationsEnd(t *testing.T) {
	clause.Cite(t, "CL-ERR-6", "CL-ABT-17", "CL-ABT-14")
	w := overSockets(t)
	p := one(w, 3)
	ended, aborted := 0, 0
	for turn := range uint64(300) {
		c, err := p.Clique(t.Context(), devices(3), collective.CliqueOptions{Traffic: turn})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for range turn % 50 * 40 {
				_ = strings.Repeat("x", 8)
			}
			c.Revoke(fmt.Errorf("turn %d", turn))
		}()
		outs := make([][]byte, 3)
		errs := each(c.Local(), func(r int, c *collective.Comm) (err error) {
			outs[r] = make([]byte, 9000)
			if err = c.Do(t.Context(), sum(outs[r], bytes.Repeat([]byte{1}, 9000))); err != nil {
				for i := range outs[r] {
					outs[r][i] = 0xDD
				}
			}
			return err
		})
		for r, err := range errs {
			want := bytes.Repeat([]byte{3}, 9000)
			if ended++; err != nil {
				aborted++
				want = bytes.Repeat([]byte{0xDD}, 9000)
				if !errors.Is(err, collective.ErrCancelled) {
					t.Errorf("turn %d: rank %d gets %v", turn, r, err)
				}
			}
			if !bytes.Equal(outs[r], want) {
				t.Fatalf("turn %d: rank %d has other data, error %v", turn, r, err)
			}
		}
		c.Close(t.Context())
	}
	t.Logf("%d of %d operations were aborted", aborted, ended)
}

// Operations are started while the group is closed: each ends, and none runs when Close has returned.
func TestStartWhileGroupCloses(t *testing.T) {
	clause.Cite(t, "CL-DES-7", "CL-ERR-1")
	for range 200 {
		w := &world{job: newJob(), t: t}
		p := one(w, 2)
		c, err := p.Clique(t.Context(), devices(2), collective.CliqueOptions{})
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan error)
		go func() {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			closed <- p.Group.Close(ctx)
		}()
		errs := each(c.Local(), func(_ int, c *collective.Comm) error {
			for {
				if err := c.Start(t.Context(), collective.Barrier{}).Wait(); err != nil {
					return err
				}
			}
		})
		<-closed
		for r, err := range errs {
			if !errors.Is(err, collective.ErrClosed) {
				t.Errorf("rank %d gets %v; want ErrClosed", r, err)
			}
		}
	}
}

// A member that calls for the next clique again and again changes nothing after the first time. Members call all others at
// each change, so two that took every call for a change would call each other without end.
func TestSummonsCountsOnce(t *testing.T) {
	clause.Cite(t, "CL-REC-9")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(3)
		for turn, want := range []bool{true, false, false} {
			if got := procs[0].SummonsChange(procs[1].life, 77, 1); got != want {
				t.Errorf("call %d of a member is a change: %v; want %v", turn, got, want)
			}
		}
		if !procs[0].SummonsChange(procs[2].life, 77, 1) {
			t.Error("the call of another member is no change; want one")
		}
	})
}
