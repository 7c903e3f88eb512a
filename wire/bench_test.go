package wire

import (
	"fmt"
	"testing"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

func BenchmarkDecode(b *testing.B) {
	for prefix, cases := range map[string][]decodeCase{xlaPrefix: xlaCases, tfPrefix: tfCases} {
		for _, c := range cases {
			if c.path != "Heartbeat" && c.path != "Barrier" && c.path != "TryGetKeyValue" {
				continue
			}
			body := encode(b, c.m)
			b.Run(fmt.Sprintf("dialect=%v/%s", methods[prefix+c.path].dialect, c.path), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := oneJob.Decode(prefix+c.path, body, Origin{Req: 1, Identify: onConnection}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkRefuse(b *testing.B) {
	for name, err := range map[string]error{
		"timeout, missing=2":     timedOut,
		"timeout, missing=10000": &serry.BarrierError{ID: "b", Missing: manyTasks(10000), First: worker(3), Members: 10001, Err: serry.ErrTimeout},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				shapeOf(TF, opBarrier).Refuse(err)
			}
		})
	}
}

func BenchmarkEncodePicture(b *testing.B) {
	const tasks = 10000
	p := &coord.Picture{Version: 1}
	for i := range tasks {
		p.Tasks = append(p.Tasks, coord.TaskInfo{Task: worker(i), State: serry.Connected, Incarnation: serry.Incarnation(i)})
	}
	for _, d := range []Dialect{XLA, TF} {
		b.Run(fmt.Sprintf("dialect=%v/tasks=%d", d, tasks), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				shapeOf(d, opWatch).Encode(coord.Reply{Result: p})
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/tasks, "ns/task")
		})
	}
}
