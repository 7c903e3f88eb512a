package collective_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/memory"
)

// reduceBy is an all-reduce of some bytes by a kind.
func reduceBy(kind collective.Reduction, size int) collective.Op {
	return collective.AllReduce{In: memory.Of(make([]byte, size)), Out: memory.Of(make([]byte, size)), Count: int64(size), Type: memory.U8, Reduction: kind}
}

// times runs an operation so many times on all ranks at once.
func times(t *testing.T, comms []*collective.Comm, n int, o func(rank, i int) collective.Op) {
	t.Helper()
	if err := errors.Join(each(comms, func(rank int, c *collective.Comm) error {
		for i := range n {
			if err := c.Do(t.Context(), o(rank, i)); err != nil {
				return err
			}
		}
		return nil
	})...); err != nil {
		t.Fatal(err)
	}
}

// A recorder keeps the last operations with their facts, and no more.
func TestRecords(t *testing.T) {
	clause.Cite(t, "CL-FLR-1")
	inBubble(t, func(t *testing.T, w *world) {
		w.group.Records = 100 // becomes 128
		comms := w.clique(w.startAll(2), devices(2))
		times(t, comms, 300, func(rank, _ int) collective.Op {
			time.Sleep(time.Duration(rank) * time.Millisecond) // rank 0 waits for rank 1
			return reduceBy(collective.Max, 64)
		})
		list := comms[0].Records(1000)
		if len(list) != 128 || list[0].Seq != 173 || list[127].Seq != 300 {
			t.Fatalf("Records() has %d, from %d to %d; want 128, from 173 to 300", len(list), list[0].Seq, list[len(list)-1].Seq)
		}
		r := list[127]
		if r.Op != "allreduce of 64 u8 by max" || r.Kind != "allreduce" || !r.All || r.Outcome != "done" || r.Algorithm == "" || r.Sent == 0 || r.Received == 0 {
			t.Errorf("Records() has %+v", r)
		}
		if !r.Ended.After(r.Began) || r.First.Before(r.Began) || r.First.After(r.Ended) || r.Slowest != 1 || r.Waited <= 0 || r.Waited > r.Ended.Sub(r.Began) {
			t.Errorf("Records() has the times %v, %v, %v, and waited %v for rank %d", r.Began, r.First, r.Ended, r.Waited, r.Slowest)
		}
		if few := comms[1].Records(3); len(few) != 3 || few[2].Seq != 300 {
			t.Errorf("Records(3) has %d", len(few))
		}
		if p := comms[0].PeerTotals(); len(p) != 1 || p[0].Rank != 1 || p[0].Sent < 300*8 || p[0].Received < 300*8 || p[0].Waited <= 0 {
			t.Errorf("PeerTotals() = %+v", p)
		}
	})
}

// Operations between two ranks are recorded, too, and failures with their cause.
func TestRecordsOfTransfersAndFailures(t *testing.T) {
	clause.Cite(t, "CL-FLR-1")
	inBubble(t, func(t *testing.T, w *world) {
		comms := w.clique(w.startAll(2), devices(2))
		each(comms, func(rank int, c *collective.Comm) error {
			if rank == 0 {
				return c.Do(t.Context(), collective.Send{In: memory.Of(make([]byte, 5)), Count: 5, Type: memory.U8, To: 1})
			}
			return c.Do(t.Context(), collective.Recv{Out: memory.Of(make([]byte, 5)), Count: 5, Type: memory.U8, From: 0})
		})
		future := comms[0].Start(t.Context(), reduceBy(collective.Sum, 8))
		synctest.Wait()
		if open := comms[0].Records(1)[0]; open.Outcome != "running" || !open.Ended.IsZero() || !open.All || !slices.Equal(open.Waiting, []int{1}) {
			t.Errorf("Records() under way: %+v", open)
		}
		comms[1].Revoke(errors.New("enough"))
		if err := future.Wait(); !errors.Is(err, collective.ErrCancelled) {
			t.Fatalf("Wait() = %v", err)
		}
		list := comms[0].Records(10)
		if len(list) != 2 || list[0].All || list[0].Sent != 5 || list[0].Outcome != "done" || list[1].Outcome != collective.ErrCancelled.Error() {
			t.Errorf("Records() = %+v", list)
		}
	})
}

// Rank 3 calls another reduction: the record of the failed clique says which rank, in which operation.
func TestFlightOfAMismatch(t *testing.T) {
	clause.Cite(t, "CL-FLR-2", "CL-FLR-4", "CLT-DES-6")
	inBubble(t, func(t *testing.T, w *world) {
		flights := make(chan *collective.Flight, 16)
		w.group.Flights = flights
		comms := w.clique(w.startAll(4), devices(4))
		times(t, comms, 40, func(_, _ int) collective.Op { return reduceBy(collective.Sum, 8) })
		var futures []*collective.Future
		for _, c := range comms[:3] {
			futures = append(futures, c.Start(t.Context(), reduceBy(collective.Sum, 8)))
		}
		synctest.Wait() // all three are in the operation, or it would fail before some of them call it
		futures = append(futures, comms[3].Start(t.Context(), reduceBy(collective.Max, 8)))
		for rank, f := range futures {
			if err := f.Wait(); !errors.Is(err, collective.ErrMismatch) {
				t.Errorf("rank %d: Wait() = %v; want ErrMismatch", rank, err)
			}
		}
		f := <-flights
		d := f.Divergence()
		if d == nil || d.Seq != 41 || len(d.Ops) != 2 || !slices.Equal(d.Ops[0].Ranks, []int{0, 1, 2}) || !slices.Equal(d.Ops[1].Ranks, []int{3}) {
			t.Fatalf("Divergence() = %+v in %v", d, f)
		}
		if want := "rank 3 called allreduce of 8 u8 by max as operation 41 where ranks 0, 1, 2 called allreduce of 8 u8 by sum"; !strings.Contains(f.String(), want) {
			t.Errorf("String() = %q; want %q in it", f, want)
		}
		if f.Err == "" {
			t.Error("the flight does not say why the clique failed")
		}
	})
}

// Rank 2 of four does not call an operation. A member that asks is told its rank, and its last operation. Later rank 2 comes, and
// counts as slow.
func TestFlightOfAHang(t *testing.T) {
	clause.Cite(t, "CL-FLR-2", "CLT-DES-6")
	onEach(t, func(t *testing.T, w *world) {
		comms := w.clique(w.startAll(4), devices(4))
		times(t, comms, 9, func(_, _ int) collective.Op { return reduceBy(collective.Sum, 8) })
		var hung []*collective.Future
		for _, rank := range []int{0, 1, 3} {
			hung = append(hung, comms[rank].Start(t.Context(), reduceBy(collective.Min, 8)))
		}
		f := comms[0].Flight(t.Context())
		if d := f.Divergence(); d == nil || d.Seq != 10 || !slices.Equal(d.Missing, []int{2}) || len(d.Ops) != 1 || !slices.Equal(d.Ops[0].Ranks, []int{0, 1, 3}) {
			t.Fatalf("Divergence() = %+v", d)
		}
		text := f.String()
		for _, want := range []string{"operation 10, allreduce of 8 u8 by min, has been called by ranks 0, 1, 3, and not by rank 2", "rank 2 ended operation 9, allreduce of 8 u8 by sum"} {
			if !strings.Contains(text, want) {
				t.Errorf("String() = %q; want %q in it", text, want)
			}
		}
		if err := comms[2].Do(t.Context(), reduceBy(collective.Min, 8)); err != nil {
			t.Fatal(err)
		}
		for _, h := range hung {
			if err := h.Wait(); err != nil {
				t.Fatal(err)
			}
		}
		if d := comms[1].Flight(t.Context()).Divergence(); d != nil {
			t.Errorf("Divergence() = %+v after all have come", d)
		}
	})
}

// The slowest rank is the one that comes last, over all operations.
func TestFlightNamesTheSlowest(t *testing.T) {
	clause.Cite(t, "CL-FLR-2")
	inBubble(t, func(t *testing.T, w *world) {
		comms := w.clique(w.startAll(3), devices(3))
		times(t, comms, 20, func(rank, _ int) collective.Op {
			if rank == 1 {
				time.Sleep(5 * time.Millisecond)
			}
			return reduceBy(collective.Sum, 8)
		})
		f := comms[2].Flight(t.Context())
		lags := f.Lags()
		if len(lags) != 3 || lags[0].Rank != 1 || lags[0].Last != 20 || lags[0].Of != 20 || lags[0].Behind < 90*time.Millisecond {
			t.Errorf("Lags() = %+v", lags)
		}
		if want := "rank 1 is the slowest: it came last in 20 of 20 operations"; !strings.Contains(f.String(), want) {
			t.Errorf("String() = %q; want %q in it", f, want)
		}
	})
}

// A rank that is lost, and one that records nothing, are silent; the others are merged.
func TestSilentRanks(t *testing.T) {
	clause.Cite(t, "CL-FLR-2")
	inBubble(t, func(t *testing.T, w *world) {
		flights := make(chan *collective.Flight, 16)
		w.group.Flights = flights
		procs := []*process{w.start(life(0, 10)), w.start(life(1, 11)), w.start(life(2, 12))}
		w.group.Records = -1
		procs = append(procs, w.start(life(3, 13)))
		comms := w.clique(procs, devices(4))
		times(t, comms, 5, func(_, _ int) collective.Op { return reduceBy(collective.Sum, 8) })
		if list := comms[3].Records(10); len(list) != 0 {
			t.Errorf("Records() = %v; want none", list)
		}
		w.kill(procs[2])
		each(comms, func(_ int, c *collective.Comm) error { loop(t.Context(), c, 8); return nil })
		for f := range flights {
			if f.By == 2 { // the dead one has found a loss, too
				continue
			}
			if f.By == 3 || f.Tracks[2].Silent == "" || f.Tracks[3].Silent != "it records nothing" || len(f.Tracks[0].Records) < 5 || len(f.Tracks[1].Records) < 5 {
				t.Errorf("the flight gathered by rank %d: %v", f.By, f)
			}
			break
		}
	})
}

// A flight is written as lines of JSON, and as a picture.
func TestFlightOnPaper(t *testing.T) {
	clause.Cite(t, "CL-FLR-3")
	inBubble(t, func(t *testing.T, w *world) {
		comms := w.clique(w.startAll(2), devices(2))
		times(t, comms, 3, func(_, _ int) collective.Op { return reduceBy(collective.Sum, 8) })
		hung := comms[0].Start(t.Context(), reduceBy(collective.Min, 8))
		f := comms[0].Flight(t.Context())
		var lines bytes.Buffer
		if err := f.WriteJSON(&lines); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(lines.String(), "\n"); n != 7 {
			t.Errorf("WriteJSON() has %d lines; want 7", n)
		}
		var first struct {
			Rank int
			Task string
			Seq  uint64
			Op   string
		}
		if err := json.NewDecoder(&lines).Decode(&first); err != nil || first.Seq != 1 || first.Op != "allreduce of 8 u8 by sum" || first.Task != "worker/0" {
			t.Errorf("WriteJSON() begins with %+v, %v", first, err)
		}
		var picture bytes.Buffer
		if err := f.WriteSVG(&picture); err != nil {
			t.Fatal(err)
		}
		if bars := bars(t, &picture); bars != 7 {
			t.Errorf("WriteSVG() has %d bars; want 7", bars)
		}
		comms[0].Revoke(nil)
		hung.Wait()
	})
}

// bars counts the bars of a picture, which must be well formed.
func bars(t *testing.T, r io.Reader) (n int) {
	t.Helper()
	for d := xml.NewDecoder(r); ; {
		token, err := d.Token()
		if err == io.EOF {
			return n
		}
		if err != nil {
			t.Fatalf("the picture is malformed: %v", err)
		}
		if s, ok := token.(xml.StartElement); ok && s.Name.Local == "title" {
			n++
		}
	}
}

func TestRecordingAllocatesNothing(t *testing.T) {
	clause.Cite(t, "CL-FLR-1")
	record := collective.NewRecording(64)
	for range 100 {
		record()
	}
	if n := testing.AllocsPerRun(1000, record); n != 0 {
		t.Errorf("a record allocates %v times", n)
	}
}

// No bytes of another member can do harm, and what was read is written the same.
func FuzzTrack(f *testing.F) {
	f.Add([]byte{})
	f.Add(collective.SampleTrack())
	f.Fuzz(func(t *testing.T, b []byte) {
		collective.ParseTrack(b)
	})
}

// BenchmarkRecord is what one operation pays for its record, and how much of it the clock costs.
func BenchmarkRecord(b *testing.B) {
	for name, f := range map[string]func(){"record": collective.NewRecording(4096), "clock": collective.NewClock()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}

// BenchmarkRecorder sums with recorders and without, in turn, and reports the ratio of the times.
func BenchmarkRecorder(b *testing.B) {
	for _, size := range []int{8, 64 << 10} {
		b.Run(fmt.Sprintf("bytes=%d", size), func(b *testing.B) {
			var sides [2][]*collective.Comm
			for i, records := range []int{0, -1} {
				w := &world{job: newJob(), t: b, local: nil}
				w.group.Records = records
				sides[i] = w.clique(w.startAll(2), devices(2))
			}
			const each = 50
			var ratios []float64
			for b.Loop() {
				var took [2]time.Duration
				for i, comms := range sides {
					began := time.Now()
					run(b, comms, each, size)
					took[i] = time.Since(began)
				}
				ratios = append(ratios, float64(took[0])/float64(took[1]))
			}
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "on/off")
		})
	}
}

// run runs sums on all ranks at once.
func run(b *testing.B, comms []*collective.Comm, n, size int) {
	var all sync.WaitGroup
	for _, c := range comms {
		op := collective.AllReduce{In: memory.Of(make([]byte, size)), Out: memory.Of(make([]byte, size)), Count: int64(size / 4), Type: memory.F32, Reduction: collective.Sum}
		all.Go(func() {
			for range n {
				if err := c.Do(context.Background(), op); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
}
