package wire

import (
	"reflect"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// FuzzDecode: no bytes harm the server. What decodes can be answered, and means the same when it is
// written out by its own message and read again.
func FuzzDecode(f *testing.F) {
	paths := make([]string, 0, len(methods))
	requests := make(map[string]proto.Message)
	for _, c := range xlaCases {
		requests[xlaPrefix+c.path] = c.m
	}
	for _, c := range tfCases {
		requests[tfPrefix+c.path] = c.m
	}
	for path := range requests {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for i, path := range paths {
		f.Add(i, encode(f, requests[path]))
	}
	f.Add(0, []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, i int, body []byte) {
		path := paths[uint(i)%uint(len(paths))]
		for _, c := range []*Codec{oneJob, twoJobs, new(Codec)} {
			ev, s, err := c.Decode(path, body, Origin{Req: 1, Next: 2, Identify: onConnection})
			checkBudget(t, s.Refuse(serry.ErrUnknownTask))
			if err != nil {
				checkBudget(t, s.Refuse(err))
				continue
			}
			m := requests[path].ProtoReflect().New().Interface()
			if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, m); err != nil {
				t.Fatalf("Decode(%s) took what is no request: %v", path, err)
			}
			again, _, err := c.Decode(path, encode(t, m), Origin{Req: 1, Next: 2, Identify: onConnection})
			if err != nil || !reflect.DeepEqual(ev, again) {
				t.Fatalf("Decode(%s) = %+v; then %+v, %v", path, ev, again, err)
			}
			if _, st := s.Encode(coord.Reply{Result: picture}); !st.OK() {
				t.Fatalf("Encode(%s) = %+v", path, st)
			}
		}
	})
}

// FuzzError: no reply harms a client, and an error it makes can be told again.
func FuzzError(f *testing.F) {
	for _, c := range answerCases {
		for _, d := range []Dialect{XLA, TF} {
			st := shapeOf(d, c.op).Refuse(c.err)
			f.Add(d == TF, uint32(st.Code), st.Message, st.Details)
		}
	}
	f.Fuzz(func(t *testing.T, tf bool, code uint32, message string, details []byte) {
		d := XLA
		if tf {
			d = TF
		}
		err := d.Error(codes.Code(code), message, details)
		if (err == nil) != (code == 0) {
			t.Fatalf("Error(%d, %q) = %v", code, message, err)
		}
		if err != nil {
			_ = err.Error()
			shapeOf(d, opPoll).Refuse(err)
		}
	})
}
