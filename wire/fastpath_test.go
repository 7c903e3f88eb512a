package wire

import (
	"fmt"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry/wire/tfpb"
	"github.com/serry-dev/serry/wire/xlapb"
)

// fastRequests are requests as clients write them all the time.
var fastRequests = map[string][]proto.Message{
	xlaPrefix + "Heartbeat": {
		&xlapb.HeartbeatRequest{Incarnations: who, Incarnation: 11, SourceTaskId: 1},
		&xlapb.HeartbeatRequest{Incarnations: who, Incarnation: 11},
		&xlapb.HeartbeatRequest{},
	},
	xlaPrefix + "Barrier": {
		&xlapb.BarrierRequest{Incarnations: who, BarrierId: "b", BarrierTimeoutInMs: 1500, SourceTaskId: 1, Counter: 2},
		&xlapb.BarrierRequest{Incarnations: who, BarrierId: "ü", BarrierTimeoutInMs: -1, SourceTaskId: -1, Counter: -1},
	},
	xlaPrefix + "InsertKeyValue": {
		&xlapb.InsertKeyValueRequest{Incarnations: who, Kv: &xlapb.KeyValueEntry{Key: "k", Value: []byte("\xff\x00")}, AllowOverwrite: true},
		&xlapb.InsertKeyValueRequest{Incarnations: who, Kv: &xlapb.KeyValueEntry{Key: "k"}},
	},
	xlaPrefix + "GetKeyValue":    {&xlapb.GetKeyValueRequest{Incarnations: who, Key: "k"}},
	xlaPrefix + "TryGetKeyValue": {&xlapb.TryGetKeyValueRequest{Incarnations: who, Key: "k"}},
	tfPrefix + "Heartbeat": {
		&tfpb.HeartbeatRequest{Incarnation: 11, SourceTask: one},
		&tfpb.HeartbeatRequest{Incarnation: 12, SourceTask: &tfpb.CoordinatedTask{JobName: "ps"}},
	},
	tfPrefix + "Barrier": {
		&tfpb.BarrierRequest{BarrierId: "b", BarrierTimeoutInMs: 1500, SourceTask: one, Counter: 2},
		&tfpb.BarrierRequest{BarrierId: "b", SourceTask: &tfpb.CoordinatedTask{TaskId: -1}},
	},
	tfPrefix + "InsertKeyValue": {&tfpb.InsertKeyValueRequest{Kv: &tfpb.KeyValueEntry{Key: "k", Value: []byte("v")}, AllowOverwrite: true}},
	tfPrefix + "GetKeyValue":    {&tfpb.GetKeyValueRequest{Key: "k"}},
	tfPrefix + "TryGetKeyValue": {&tfpb.TryGetKeyValueRequest{Key: "k"}},
}

var fastOrigin = Origin{Req: 1, Next: 2, Identify: onConnection}

// TestFastPath: what clients usually write is read by hand, and other forms of it are not.
func TestFastPath(t *testing.T) {
	for path, requests := range fastRequests {
		for _, m := range requests {
			body := encode(t, m)
			if _, _, ok := oneJob.fastPath(methods[path], body, fastOrigin); !ok {
				t.Errorf("fastPath(%s, %v) left it to the generated code", path, m)
			}
			checkFastPath(t, path, body)
			if len(body) == 0 {
				continue
			}
			for name, odd := range map[string][]byte{
				"cut":           body[:len(body)-1],
				"twice":         append(body[:len(body):len(body)], body...),
				"unknown field": append(body[:len(body):len(body)], 0xf8, 0x07, 0x01),
			} {
				if _, _, ok := oneJob.fastPath(methods[path], odd, fastOrigin); ok {
					t.Errorf("fastPath(%s, %v), %s, read it; want it left to the generated code", path, m, name)
				}
			}
		}
	}
}

// checkFastPath holds what is read by hand to the generated code.
func checkFastPath(t *testing.T, path string, body []byte) {
	t.Helper()
	m := methods[path]
	for _, c := range []*Codec{oneJob, twoJobs, new(Codec)} {
		for _, o := range []Origin{fastOrigin, {}} {
			ev, s, ok := c.fastPath(m, body, o)
			if !ok {
				continue
			}
			want, wantShape, err := c.generated(m, body, o)
			if err != nil || !reflect.DeepEqual(ev, want) || s != wantShape {
				t.Fatalf("fastPath(%s, %q) = %+v, %+v; want %+v, %+v, %v", path, body, ev, s, want, wantShape, err)
			}
		}
	}
}

// FuzzFastPath: what is read by hand means what the generated code makes of it.
func FuzzFastPath(f *testing.F) {
	for path, requests := range fastRequests {
		for _, m := range requests {
			f.Add(path, encode(f, m))
		}
	}
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		if _, ok := methods[path]; ok {
			checkFastPath(t, path, body)
		}
	})
}

// BenchmarkFastPath compares the two ways to read the same bytes.
func BenchmarkFastPath(b *testing.B) {
	for path, requests := range fastRequests {
		m, body := methods[path], encode(b, requests[0])
		for name, read := range map[string]func(){
			"by hand":   func() { oneJob.fastPath(m, body, fastOrigin) },
			"generated": func() { oneJob.generated(m, body, fastOrigin) },
		} {
			b.Run(fmt.Sprintf("dialect=%v/%v/%s", m.dialect, m.op, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					read()
				}
			})
		}
	}
}
