package collective_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry/collective"
	"github.com/serry-dev/serry/internal/lab/clause"
)

// testimonies asks processes as a service does. The clock of the service is ahead of theirs, and the way takes a while.
func testimonies(procs []*process, ahead time.Duration) (list []collective.Testimony) {
	for _, p := range procs {
		asked := time.Now().Add(ahead)
		time.Sleep(time.Millisecond)
		body := collective.Testify(p.Group, 64<<10)
		time.Sleep(time.Millisecond)
		list = append(list, collective.Testimony{Body: body, Asked: asked, Answered: time.Now().Add(ahead)})
	}
	return list
}

// A process whose answer comes late has not begun its operations later than the others.
func TestLateTestimony(t *testing.T) {
	clause.Cite(t, "CL-FLR-2", "CL-FLR-5")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(2)
		times(t, w.clique(procs, devices(2)), 3, func(int, int) collective.Op { return reduceBy(collective.Sum, 64) })
		list := testimonies(procs, 0)
		list[1].Answered = list[1].Answered.Add(2 * time.Second)
		flights, err := collective.MergeTestimonies(list)
		if err != nil || len(flights) != 1 {
			t.Fatalf("MergeTestimonies() = %v, %v; want one clique", flights, err)
		}
		for _, track := range flights[0].Tracks {
			if track.Skew != 0 {
				t.Errorf("rank %d: skew %v within %v; want none", track.Rank, track.Skew, track.Within)
			}
		}
	})
}

// What processes tell the service names the rank that runs another operation, also while all of them hang.
func TestTestimonies(t *testing.T) {
	clause.Cite(t, "CL-FLR-5", "D-SC-10")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(4)
		comms := w.clique(procs, devices(4))
		times(t, comms, 40, func(int, int) collective.Op { return reduceBy(collective.Sum, 64) })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			each(comms[:3], func(rank int, c *collective.Comm) error { return c.Do(ctx, reduceBy(collective.Sum, 64)) })
		}()
		synctest.Wait()
		time.Sleep(time.Minute)
		const ahead = time.Hour
		flights, err := collective.MergeTestimonies(testimonies(procs, ahead))
		if err != nil || len(flights) != 1 || len(flights[0].Tracks) != 4 {
			t.Fatalf("MergeTestimonies() = %v, %v; want one clique of four ranks", flights, err)
		}
		f := flights[0]
		text := f.String()
		if d := f.Divergence(); d == nil || d.Seq != 41 || len(d.Missing) != 1 || d.Missing[0] != 3 {
			t.Errorf("Divergence() = %+v; want rank 3 missing in operation 41", d)
		}
		if !strings.HasPrefix(text, "operation 41, allreduce of 64 u8 by sum, has been called by ranks 0, 1, 2, and not by rank 3\nrank 3 ended operation 40") {
			t.Errorf("the flight says:\n%s", text)
		}
		for _, track := range f.Tracks {
			if track.Skew != -ahead || track.Within != time.Millisecond || len(track.Records) < 40 {
				t.Errorf("rank %d: skew %v within %v, %d records", track.Rank, track.Skew, track.Within, len(track.Records))
			}
		}
		// The picture of it.
		var svg bytes.Buffer
		if err := f.WriteSVG(&svg); err != nil || !strings.Contains(svg.String(), "rank 3 (") {
			t.Errorf("WriteSVG() = %v, %d bytes", err, svg.Len())
		}
		// Rank 3 calls another one.
		if err := comms[3].Do(ctx, reduceBy(collective.Max, 64)); err == nil {
			t.Error("another operation than those of the others passes")
		}
		cancel()
		<-done
		flights, err = collective.MergeTestimonies(testimonies(procs, 0))
		if err != nil || len(flights) != 1 {
			t.Fatalf("MergeTestimonies() = %v, %v; want the clique that has failed", flights, err)
		}
		want := "rank 3 called allreduce of 64 u8 by max as operation 41 where ranks 0, 1, 2 called allreduce of 64 u8 by sum"
		if got, _, _ := strings.Cut(flights[0].String(), "\n"); got != want || flights[0].Err == "" {
			t.Errorf("the flight says %q, %q; want %q", got, flights[0].Err, want)
		}
	})
}

// A process that answers nonsense, or not at all, harms no other.
func TestTestimoniesOfSome(t *testing.T) {
	clause.Cite(t, "CL-FLR-5")
	inBubble(t, func(t *testing.T, w *world) {
		procs := w.startAll(2)
		comms := w.clique(procs, devices(2))
		times(t, comms, 3, func(int, int) collective.Op { return reduceBy(collective.Sum, 64) })
		list := testimonies(procs[:1], 0)
		whole := list[0].Body
		for n := range len(whole) {
			list = append(list, collective.Testimony{Body: whole[:n]})
		}
		flights, err := collective.MergeTestimonies(list)
		if err == nil || len(flights) == 0 || !strings.Contains(flights[len(flights)-1].String(), "did not answer") {
			t.Errorf("MergeTestimonies() = %v, %v; want an error, and what is known", flights, err)
		}
		if b := collective.Testify(procs[0].Group, 1000); len(b) > 1000 {
			t.Errorf("Testify() has %d bytes; want 1000 at most", len(b))
		}
	})
}

// A process that claims operations with numbers far apart does not keep a command busy for ever.
func TestTestimonyOfStrangeNumbers(t *testing.T) {
	clause.Cite(t, "CL-FLR-5")
	records := []collective.Record{{Seq: 1, All: true, Op: "x"}, {Seq: 1 << 62, All: true, Op: "x"}}
	f := &collective.Flight{Tracks: []collective.Track{{Rank: 0, Records: records}, {Rank: 1, Records: records}}}
	if d := f.Divergence(); d != nil {
		t.Errorf("Divergence() = %+v; want none", d)
	}
	if lags := f.Lags(); len(lags) != 2 || lags[0].Of != 2 {
		t.Errorf("Lags() = %+v; want two operations compared", lags)
	}
}

// FuzzTestimonies: no answer of a process crashes the command that reads it.
func FuzzTestimonies(f *testing.F) {
	f.Add([]byte{1})
	f.Add(append([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0}, bytes.Repeat([]byte{2, 0}, 40)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		flights, _ := collective.MergeTestimonies([]collective.Testimony{{Body: b}, {Body: b}})
		for _, f := range flights {
			_ = f.String()
			if err := f.WriteSVG(&bytes.Buffer{}); err != nil {
				t.Fatal(err)
			}
		}
	})
}
