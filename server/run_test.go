package server_test

import (
	"testing"
	"testing/synctest"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/wire/xlapb"
)

func TestRun(t *testing.T) {
	lab.Clause(t, "C-REG-9", "C-KV-3", "C-BAR-13", "C-SHUT-4")
	synctest.Test(t, func(t *testing.T) {
		l := lab.Serve(t, cluster(2))
		tasks := fleet(t, l, 2, 100)
		a, b := tasks[0], tasks[1]
		got := async(func() error {
			r, err := b.GetKeyValue(t.Context(), &xlapb.GetKeyValueRequest{Incarnations: b.who(), Key: "k"})
			if err == nil && string(r.GetKv().GetValue()) != "v" {
				t.Errorf("GetKeyValue() = %v; want v", r)
			}
			return err
		})
		pending(t, "GetKeyValue", got)
		_, err := a.InsertKeyValue(t.Context(), &xlapb.InsertKeyValueRequest{
			Incarnations: a.who(), Kv: &xlapb.KeyValueEntry{Key: "k", Value: []byte("v")},
		})
		if err != nil {
			t.Fatalf("InsertKeyValue() = %v", err)
		}
		if err := <-got; err != nil {
			t.Errorf("GetKeyValue() = %v", err)
		}
		first := async(func() error { return a.barrier(t.Context(), "step", 0) })
		pending(t, "Barrier", first)
		if err := b.barrier(t.Context(), "step", 0); err != nil {
			t.Errorf("Barrier() = %v", err)
		}
		if err := <-first; err != nil {
			t.Errorf("Barrier() = %v", err)
		}
		left := async(func() error { return a.shutdown(t.Context()) })
		pending(t, "ShutdownTask", left)
		if err := b.shutdown(t.Context()); err != nil {
			t.Errorf("ShutdownTask() = %v", err)
		}
		if err := <-left; err != nil {
			t.Errorf("ShutdownTask() = %v", err)
		}
	})
}
