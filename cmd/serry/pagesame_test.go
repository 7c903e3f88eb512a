package main

import (
	"context"
	"encoding/json"
	"io"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/serry-dev/serry/internal/pause"
)

// ageing are the fields of documents that are others a moment later.
var ageing = []string{"clock", "up_seconds", "for_seconds", "left_seconds", "heard_seconds", "call_seconds", "lag_seconds", "ago_seconds", "least_seconds", "usual_seconds"}

// same checks that a document of the page is what a command prints with -o json: same PATH COMMAND ARGS... . The page may say more of each
// thing; what the command says it says, too. Both are asked again while they differ: the job may change between the two answers.
func same(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), untilPatience)
	defer cancel()
	for {
		_ = ts.Exec("serry", append(args[1:], "-o", "json")...) // its status says how the job is
		command := ts.ReadFile("stdout")
		reply := request(ctx, ts, args[0])
		page, err := io.ReadAll(reply.Body)
		reply.Body.Close()
		ts.Check(err)
		var want, got any
		if json.Unmarshal([]byte(command), &want) == nil && json.Unmarshal(page, &got) == nil && within(want, got) {
			return
		}
		if pause.For(ctx, 100*time.Millisecond) != nil {
			ts.Fatalf("GET %s is\n%s\nwant what serry %s prints:\n%s", args[0], page, strings.Join(args[1:], " "), command)
		}
	}
}

// within says whether all that a document says is in another.
func within(want, got any) bool {
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		for name, value := range want {
			other, has := got[name]
			switch {
			case !ok || !has:
				return false
			case slices.Contains(ageing, name):
			case !within(value, other):
				return false
			}
		}
		return ok
	case []any:
		got, ok := got.([]any)
		if !ok || len(got) != len(want) {
			return false
		}
		for i := range want {
			if !within(want[i], got[i]) {
				return false
			}
		}
		return true
	case string:
		got, ok := got.(string)
		return ok && normalise(want) == normalise(got)
	default:
		return reflect.DeepEqual(want, got)
	}
}

// offerAddress stores the address of a rank as Gloo does, as the C library of Linux has it, with room to spare: offer RANK ADDRESS.
func offerAddress(ts *testscript.TestScript, _ bool, args []string) {
	a, err := netip.ParseAddrPort(args[1])
	ts.Check(err)
	value := append([]byte{2, 0, byte(a.Port() >> 8), byte(a.Port())}, a.Addr().AsSlice()...)
	value = append(value, make([]byte, 32)...)
	ts.Check(jobOf(ts).member(ts, "0").KV().Put(context.Background(), "cpu:gloo/0,1/"+args[0], value))
}
