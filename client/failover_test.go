package client_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/lab/shareddisk"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/store"
)

// lead makes cfg that of the leader of a disk, whoever led it before.
func lead(t *testing.T, disk *shareddisk.Disk, cfg server.Config) server.Config {
	t.Helper()
	disk.Expire()
	reign, err := disk.Open().Campaign(t.Context(), store.Candidate{Address: "lab"})
	if err != nil {
		t.Fatalf("Campaign() = %v", err)
	}
	cfg.Journal = reign
	return cfg
}

func TestCallsTakeEffectOnceInAFailOver(t *testing.T) {
	lab.Clause(t, "C-REQ-3", "C-LOG-2", "T-AG-54")
	for what, early := range map[string]bool{"answers": false, "calls": true} {
		for _, order := range orders() {
			for before := range len(order) + 1 {
				name := fmt.Sprintf("%s lost, %s, %d before", what, strings.Join(order, ", "), before)
				t.Run(name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { loseAround(t, order, early, before) })
				})
			}
		}
	}
}

// loseAround has three calls open at once, loses them in an order, and replaces the coordinator when
// some of them are lost. Task 1 is at the barrier all the time: an arrival of task 0 that counted
// twice would be in the next instance, where nobody meets it.
func loseAround(t *testing.T, order []string, early bool, before int) {
	disk, cfg, ctx := shareddisk.New(shareddisk.Config{}), loose(2), t.Context()
	f := newFleet(t, client.Serry, lead(t, disk, cfg))
	service := f.View().Service
	l := newLossy(f.Line(t, client.DialOptions{}), order...)
	l.early, l.gate = early, make(chan struct{})
	m, other := lossyMember(t, f, l, 0), f.again(1)
	b := serry.BarrierOptions{Among: workers(0, 1)}
	ends := map[string]<-chan error{
		"Add()": async(func() error {
			got, err := m.KV().Add(ctx, "sum", 1)
			if err == nil && got != 1 {
				err = fmt.Errorf("%d; want 1", got)
			}
			return err
		}),
		"Create()":              async(func() error { return m.KV().Create(ctx, "k", []byte("v")) }),
		"Barrier()":             async(func() error { return m.Barrier(ctx, "b", b) }),
		"Barrier() of worker/1": async(func() error { return other.Barrier(ctx, "b", b) }),
	}
	for lost := range order {
		if lost == before {
			synctest.Wait()
			f.replaced(cfg, disk)
		}
		l.gate <- struct{}{}
		time.Sleep(time.Second)
	}
	if before == len(order) {
		f.replaced(cfg, disk)
	}
	for what, end := range ends {
		if err := <-end; err != nil {
			t.Errorf("%s = %v", what, err)
		}
	}
	if got, err := m.KV().Add(ctx, "sum", 1); err != nil || got != 2 {
		t.Errorf("Add() again = %d, %v; want 2", got, err)
	}
	if err := m.KV().Create(ctx, "k", nil); !errors.Is(err, serry.ErrExists) {
		t.Errorf("Create() again = %v; want %v", err, serry.ErrExists)
	}
	next := async(func() error { return other.Barrier(ctx, "b", b) })
	waits(t, "the next instance of the barrier", next)
	if err := errors.Join(m.Barrier(ctx, "b", b), <-next); err != nil {
		t.Errorf("Barrier() again = %v", err)
	}
	if got := f.View().Service; got != service {
		t.Errorf("the service is %v; want still %v", got, service)
	}
	other.lives(t)
}

// replaced kills the server, and starts one that goes on with what the disk holds.
func (f *fleet) replaced(cfg server.Config, disk *shareddisk.Disk) {
	f.t.Helper()
	f.Lab = f.Crash(f.t, func() server.Config {
		time.Sleep(500 * time.Millisecond)
		return lead(f.t, disk, cfg)
	})
}
