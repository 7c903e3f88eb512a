package transfer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/transfer"
	"github.com/serry-dev/serry/transfer/offer"
)

// offerBytes offers buffers of bytes.
func (p *process) offerBytes(id offer.ID, o transfer.OfferOptions, contents ...[]byte) *transfer.Offered {
	p.world.t.Helper()
	var buffers []*transfer.Buffer
	for _, c := range contents {
		buffers = append(buffers, p.buffer(c, p.Pool().Ready()))
	}
	x, err := p.Offer(p.world.t.Context(), id, buffers, o)
	if err != nil {
		p.world.t.Fatalf("Offer(%d) = %v", id, err)
	}
	return x
}

// pull pulls whole buffers of a size.
func (p *process) pull(ctx context.Context, h transfer.Handle, size int, indexes ...int) *transfer.Group {
	p.world.t.Helper()
	var wants []transfer.Want
	for _, i := range indexes {
		wants = append(wants, transfer.Want{Index: i, Device: p.device, Spec: bytesSpec(size)})
	}
	g, err := p.Pull(ctx, h, wants)
	if err != nil {
		p.world.t.Fatalf("Pull(%v) = %v", h, err)
	}
	return g
}

func TestPull(t *testing.T) {
	clause.Cite(t, "TR-PUL-1", "TR-PUL-2", "TR-PUL-5", "TR-PUL-13", "TRT-110", "TRT-111", "TRT-120")
	onEach(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		contents := [][]byte{fill(5<<20, 1), fill(5<<20, 2), fill(5<<20, 3)}
		token := transfer.Token{7}
		early := b.pull(t.Context(), transfer.Handle{From: a.life, ID: 9, Token: token}, 5<<20, 2) // before there is an offer
		x := a.offerBytes(9, transfer.OfferOptions{Token: token}, contents...)
		late := b.pull(t.Context(), x.Handle(), 5<<20, 1, 0)
		for i, item := range append(early.Items(), late.Items()...) {
			if want := contents[2-i]; !bytes.Equal(content(t, item.Buffer), want) {
				t.Errorf("pull %d brought other bytes", i)
			}
		}
		if err := x.Done().Wait(t.Context()); err != nil {
			t.Errorf("the offer ended: %v", err)
		}
		seen := make(map[int]bool)
		for range 3 {
			d, err := x.Next(t.Context())
			if err != nil || d.Err != nil || d.Consumer != b.life || d.Bytes != 5<<20 || seen[d.Index] {
				t.Errorf("Next() = %+v, %v; want a delivery to %v", d, err, b.life)
			}
			seen[d.Index] = true
		}
		if d, err := x.Next(t.Context()); err != io.EOF {
			t.Errorf("Next() of an offer that is over = %+v, %v; want EOF", d, err)
		}
	})
}

func TestPullOfShared(t *testing.T) {
	clause.Cite(t, "TR-G-12", "TR-PUL-5")
	inHostBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		want := fill(3<<20, 1)
		x, err := a.Offer(t.Context(), 1, []*transfer.Buffer{a.inArena(arena(t, 4<<20), want)}, transfer.OfferOptions{})
		if err != nil {
			t.Fatal(err)
		}
		g := b.pull(t.Context(), x.Handle(), 3<<20, 0)
		if !bytes.Equal(content(t, g.Items()[0].Buffer), want) || x.Done().Wait(t.Context()) != nil || b.paths()[0] != transfer.ByMemory {
			t.Errorf("the pull went by %v", b.paths())
		}
	})
}

// Parts of buffers: a range of bytes, and a block of a matrix, whose rows do not lie in a row.
func TestPartialPull(t *testing.T) {
	clause.Cite(t, "TR-PUL-17", "TR-LAY-5", "TRT-242")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		matrix := fill(100*100, 1) // of 100 rows
		x := a.offerBytes(1, transfer.OfferOptions{Times: offer.Unlimited}, matrix)
		block := transfer.View{Offset: 20*100 + 30, Run: 10, Counts: []int64{5}, Strides: []int64{100}}
		cube := transfer.View{Offset: 1, Run: 2, Counts: []int64{3, 2}, Strides: []int64{1000, 10}}
		var wantBlock, wantCube []byte
		for row := range 5 {
			wantBlock = append(wantBlock, matrix[(20+row)*100+30:][:10]...)
		}
		for i := range 3 {
			for j := range 2 {
				wantCube = append(wantCube, matrix[1+i*1000+j*10:][:2]...)
			}
		}
		for name, part := range map[string]struct {
			view transfer.View
			want []byte
		}{
			"range": {transfer.View{Offset: 77, Run: 1000}, matrix[77:1077]},
			"block": {block, wantBlock}, "cube": {cube, wantCube},
			"all": {transfer.View{Run: 100 * 100}, matrix},
		} {
			g, err := b.Pull(t.Context(), x.Handle(), []transfer.Want{{View: part.view, Device: b.device, Spec: bytesSpec(len(part.want))}})
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(content(t, g.Items()[0].Buffer), part.want) {
				t.Errorf("%s: other bytes came", name)
			}
		}
		sizes := map[string]int{"beyond": 1001, "negative": 10, "too much": 20000, "reaches a bit": 10000}
		for name, v := range map[string]transfer.View{
			"beyond":        {Offset: 9000, Run: 1001},
			"negative":      {Offset: -1, Run: 10},
			"no bytes":      {Offset: 1},
			"backwards":     {Offset: 100, Run: 1, Counts: []int64{5}, Strides: []int64{-1}},
			"overflow":      {Run: 1 << 62, Counts: []int64{4}, Strides: []int64{1}},
			"too much":      {Run: 10000, Counts: []int64{2}, Strides: []int64{1}},
			"reaches far":   {Run: 1, Counts: []int64{1 << 40}, Strides: []int64{1 << 40}},
			"reaches a bit": {Run: 1, Counts: []int64{100, 100}, Strides: []int64{101, 1}},
		} {
			g, err := b.Pull(t.Context(), x.Handle(), []transfer.Want{{View: v, Device: b.device, Spec: bytesSpec(sizes[name])}})
			if err == nil {
				err = g.Done().Wait(t.Context())
			}
			if !errors.Is(err, transfer.ErrInvalid) {
				t.Errorf("%s: pull = %v; want ErrInvalid", name, err)
			}
		}
		x.Withdraw()
	})
}

// Every refusal has its code and its reason, and disturbs nothing else (TR-H-21 is how JAX has it).
func TestPullsThatAreRefused(t *testing.T) {
	clause.Cite(t, "TR-PUL-1", "TR-PUL-4", "TR-PUL-6", "TR-PUL-7", "TR-PUL-8", "TR-PUL-14", "TR-SEC-5", "TRT-113", "TRT-114", "TRT-115",
		"TRT-116", "TRT-117", "TRT-118", "TRT-119", "TRT-271", "TR-H-21", "TR-H-13", "TR-H-2")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		x := a.offerBytes(1, transfer.OfferOptions{}, []byte("one"), []byte("two"))
		if _, err := a.Offer(t.Context(), 1, []*transfer.Buffer{a.buffer([]byte("x"), a.Pool().Ready())}, transfer.OfferOptions{}); !errors.Is(err, offer.ErrOffered) {
			t.Errorf("a second offer = %v; want ErrOffered", err)
		}
		guess := x.Handle()
		guess.Token[0]++
		expect := func(what string, g *transfer.Group, want error) {
			t.Helper()
			if err := g.Done().Wait(t.Context()); !errors.Is(err, want) {
				t.Errorf("%s: pull = %v; want %v", what, err, want)
			}
		}
		expect("another token", b.pull(t.Context(), guess, 3, 0), transfer.ErrDenied)
		expect("no such buffer", b.pull(t.Context(), x.Handle(), 3, 2), transfer.ErrInvalid)
		expect("another size", b.pull(t.Context(), x.Handle(), 4, 0), transfer.ErrInvalid)
		expect("first", b.pull(t.Context(), x.Handle(), 3, 0), nil)
		expect("twice", b.pull(t.Context(), x.Handle(), 3, 0), transfer.ErrStale)
		expect("the other", b.pull(t.Context(), x.Handle(), 3, 1), nil)
		if err := x.Done().Wait(t.Context()); err != nil {
			t.Errorf("the offer is %v; want all delivered", err)
		}
		began := time.Now()
		short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		waiting := b.pull(short, transfer.Handle{From: a.life, ID: 5}, 3, 0)
		expect("no offer", waiting, transfer.ErrTimeout)
		if d := time.Since(began); d > 4*time.Second {
			t.Errorf("a pull with 3s ended after %v", d)
		}
		x = a.offerBytes(6, transfer.OfferOptions{Expire: time.Second}, []byte("old"))
		if err := x.Done().Wait(t.Context()); !errors.Is(err, offer.ErrExpired) {
			t.Errorf("the offer ended %v; want ErrExpired", err)
		}
		late := b.pull(t.Context(), transfer.Handle{From: a.life, ID: 6, Token: transfer.Token{1}}, 3, 0)
		time.Sleep(time.Second)
		x = a.offerBytes(6, transfer.OfferOptions{Token: transfer.Token{1}}, []byte("new")) // what had expired, is as if it had never been
		expect("offered again", late, nil)
		late = b.pull(t.Context(), transfer.Handle{From: a.life, ID: 7, Token: transfer.Token{1}}, 3, 0)
		time.Sleep(time.Second)
		promise, definition := a.Pool().Event()
		x, err := a.Offer(t.Context(), 8, []*transfer.Buffer{a.buffer([]byte("bad"), definition)}, transfer.OfferOptions{})
		if err != nil {
			t.Fatal(err)
		}
		bad := b.pull(t.Context(), x.Handle(), 3, 0)
		promise.Set(errProducer)
		expect("error in place of data", bad, transfer.ErrFailed)
		x.Withdraw()
		if err := x.Done().Wait(t.Context()); !errors.Is(err, offer.ErrWithdrawn) {
			t.Errorf("the offer ended %v; want ErrWithdrawn", err)
		}
		if d, err := x.Next(t.Context()); err != nil || d.Err == nil {
			t.Errorf("Next() = %+v, %v; want the failed delivery", d, err)
		}
		late.Cancel(nil)
		expect("cancelled", late, transfer.ErrCancelled)
	})
}

// One offer goes to many consumers at once, as often as it says.
func TestFanOut(t *testing.T) {
	clause.Cite(t, "TR-PUL-5", "TR-SND-6", "TRT-030")
	inBubble(t, func(t *testing.T, w *world) {
		all := w.startAll(9)
		want := fill(5<<20, 1)
		x := all[0].offerBytes(1, transfer.OfferOptions{Times: 8}, want)
		var groups []*transfer.Group
		for _, p := range all[1:] {
			groups = append(groups, p.pull(t.Context(), x.Handle(), 5<<20, 0))
		}
		for i, g := range groups {
			if !bytes.Equal(content(t, g.Items()[0].Buffer), want) {
				t.Errorf("consumer %d got other bytes", i)
			}
		}
		if err := x.Done().Wait(t.Context()); err != nil {
			t.Errorf("the offer is %v; want delivered 8 times", err)
		}
	})
}

// The memory of an offer stays until the offer is done.
func TestOfferKeepsItsMemory(t *testing.T) {
	clause.Cite(t, "TR-PUL-10", "TR-OBJ-5")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		x := a.offerBytes(1, transfer.OfferOptions{}, []byte("content"))
		again := a.buffer([]byte("x"), a.Pool().Ready())
		_, err := a.Offer(t.Context(), 2, []*transfer.Buffer{again}, transfer.OfferOptions{})
		if err != nil {
			t.Fatal(err)
		}
		donation, err := again.Donate(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, free := donation.Confirm()
		synctest.Wait()
		if free.State() == transfer.Complete {
			t.Error("memory that is offered was given away")
		}
		g := b.pull(t.Context(), transfer.Handle{From: a.life, ID: 2}, 1, 0)
		if err := g.Done().Wait(t.Context()); !errors.Is(err, transfer.ErrDenied) {
			t.Errorf("pull without a token = %v", err)
		}
		x.Withdraw()
	})
}

// Consumers and producers that are killed: what they had asked for or offered is forgotten.
func TestPullsOfTheDead(t *testing.T) {
	clause.Cite(t, "TR-COM-2", "TR-MAT-4", "TR-PUL-12", "TRT-217")
	inBubble(t, func(t *testing.T, w *world) {
		a, b := w.pair()
		gone := b.pull(t.Context(), transfer.Handle{From: a.life, ID: 1, Token: transfer.Token{1}}, 3, 0)
		synctest.Wait()
		w.kill(b)
		time.Sleep(time.Second)
		w.set(b.life, serry.Failed)
		next := w.start(life(1, 21))
		x := a.offerBytes(1, transfer.OfferOptions{Token: transfer.Token{1}}, []byte("abc"))
		g := next.pull(t.Context(), x.Handle(), 3, 0)
		if string(content(t, g.Items()[0].Buffer)) != "abc" {
			t.Error("the next life got other bytes")
		}
		if d, err := x.Next(t.Context()); err != nil || d.Consumer != next.life {
			t.Errorf("Next() = %+v, %v; want a delivery to the next life", d, err)
		}
		w.kill(a)
		w.set(a.life, serry.Failed)
		w.start(life(0, 22))
		time.Sleep(time.Second)
		if _, err := next.Pull(t.Context(), x.Handle(), []transfer.Want{{Device: 1, Spec: bytesSpec(3)}}); !errors.Is(err, transfer.ErrStale) {
			t.Errorf("pull from a life that is over = %v; want ErrStale", err)
		}
		gone.Cancel(nil)
	})
}

// Pulls between processes whose connections are reset again and again all end well, each once.
func TestPullsThroughResets(t *testing.T) {
	clause.Cite(t, "TR-PUL-12", "TR-ERR-5", "TR-ASY-1")
	for seed := range uint64(20) {
		inBubble(t, func(t *testing.T, w *world) {
			r := rand.New(rand.NewPCG(seed, 7))
			all := w.startAll(3)
			token := transfer.Token{3}
			var offers []*transfer.Offered
			var groups []*transfer.Group
			for i := range 30 {
				id := offer.ID(i)
				if r.IntN(2) == 0 {
					offers = append(offers, all[0].offerBytes(id, transfer.OfferOptions{Token: token, Times: 2}, fill(100_000, uint64(i))))
				}
				for _, p := range all[1:] {
					groups = append(groups, p.pull(t.Context(), transfer.Handle{From: all[0].life, ID: id, Token: token}, 100_000, 0))
				}
				if len(offers) == 0 || offers[len(offers)-1].Handle().ID != id {
					offers = append(offers, all[0].offerBytes(id, transfer.OfferOptions{Token: token, Times: 2}, fill(100_000, uint64(i))))
				}
				time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
				w.network.reset(hostOf(all[r.IntN(3)].life))
			}
			for i, g := range groups {
				if !bytes.Equal(content(t, g.Items()[0].Buffer), fill(100_000, uint64(i/2))) {
					t.Errorf("seed %d: pull %d got other bytes", seed, i)
				}
			}
			for i, x := range offers {
				if err := x.Done().Wait(t.Context()); err != nil {
					t.Errorf("seed %d: offer %d is %v", seed, i, err)
				}
			}
		})
	}
}

// A peer that asks for more than it may is refused, and others are served.
func TestFloodOfRequests(t *testing.T) {
	clause.Cite(t, "TR-BPR-5", "TR-ERR-2", "TR-ERR-3")
	inBubble(t, func(t *testing.T, w *world) {
		for i := range 3 {
			w.set(life(i, uint64(10+i)), serry.Connected)
		}
		a, b := w.start(life(0, 10)), w.start(life(1, 11))
		x := w.liar(life(2, 12))
		l, err := x.net.Link(t.Context(), a.life)
		if err != nil {
			t.Fatal(err)
		}
		const flood = 1<<16 + 5000
		for key := uint64(0); key < flood; {
			var frame []byte
			for ; key < flood && len(frame) < 60<<10; key++ {
				frame = append(frame, transfer.RequestFrame(key, 99)...)
			}
			if _, err := l.Post(link.Header{Family: link.Transfer, Type: link.Pull, Class: link.Control}, frame); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if _, err := l.Post(link.Header{Family: link.Transfer, Type: link.Pull, Class: link.Control}, []byte("nonsense")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := len(x.frames); n == 0 {
			t.Error("no request was refused")
		}
		offered := a.offerBytes(1, transfer.OfferOptions{}, []byte("abc"))
		if g := b.pull(t.Context(), offered.Handle(), 3, 0); string(content(t, g.Items()[0].Buffer)) != "abc" {
			t.Error("another peer was not served")
		}
	})
}

func TestHandles(t *testing.T) {
	clause.Cite(t, "TR-PUL-15")
	h := transfer.Handle{From: serry.Life{Task: serry.TaskID{Job: "a/b", Index: 3}, Incarnation: 1 << 63}, ID: 1<<64 - 1, Token: transfer.Token{1, 15: 255}}
	text, err := json.Marshal(map[string]transfer.Handle{"offer": h})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]transfer.Handle
	if err := json.Unmarshal(text, &got); err != nil || got["offer"] != h {
		t.Errorf("%s is read as %+v, %v", text, got, err)
	}
	for _, bad := range []string{"", "a/1@2/3", "a/1@2/3/4", "a/-1@2/3/" + fmt.Sprintf("%032x", 1), "a/1/3/" + fmt.Sprintf("%032x", 1)} {
		if err := new(transfer.Handle).UnmarshalText([]byte(bad)); !errors.Is(err, transfer.ErrInvalid) {
			t.Errorf("UnmarshalText(%q) = %v; want ErrInvalid", bad, err)
		}
	}
}
