package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/internal/lab"
)

// A badServer is what stands at the address instead of a service: it gets one end of each connection.
type badServer func(conn net.Conn)

// connect makes connections to it.
func (b badServer) connect(ctx context.Context, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		b(theirs)
	}()
	return ours, nil
}

// silent takes everything and says nothing.
func silent(conn net.Conn) { io.Copy(io.Discard, conn) }

// says answers whatever comes with some bytes.
func says(words ...[]byte) badServer {
	return func(conn net.Conn) {
		io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface)))
		for _, w := range words {
			conn.Write(w)
		}
		silent(conn)
	}
}

// A page is how a server of HTTP/2 answers everything.
type page struct {
	header  string // "name value", one a line, after the status 200 or another
	body    string
	trailer string // none: the body ends the stream
}

const grpcHeader, grpcOK = ":status 200\ncontent-type application/grpc", "grpc-status 0"

// replies is a page with these bytes for messages, and then success.
func replies(stream string) page { return page{grpcHeader, stream, grpcOK} }

// serves answers all calls with a page. The servers of the libraries cannot be used in a bubble.
func serves(p page) badServer {
	return func(conn net.Conn) {
		if _, err := io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface))); err != nil {
			return
		}
		f := http2.NewFramer(conn, conn)
		f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch h := frame.Header(); {
			case h.Type == http2.FrameSettings && !h.Flags.Has(http2.FlagSettingsAck):
				f.WriteSettingsAck()
			case h.Type == http2.FrameData && h.Flags.Has(http2.FlagDataEndStream):
				p.write(f, h.StreamID)
			}
		}
	}
}

func (p page) write(f *http2.Framer, stream uint32) {
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: fields(p.header), EndHeaders: true})
	f.WriteData(stream, p.trailer == "", []byte(p.body))
	if p.trailer != "" {
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: fields(p.trailer), EndHeaders: true, EndStream: true})
	}
}

// fields encodes header fields.
func fields(lines string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for line := range strings.Lines(lines) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		e.WriteField(hpack.HeaderField{Name: name, Value: value})
	}
	return b.Bytes()
}

func TestBadServers(t *testing.T) {
	lab.Clause(t, "T-AG-40")
	noise := make([]byte, 4096)
	rand.NewChaCha8([32]byte{}).Read(noise)
	for name, c := range map[string]struct {
		server badServer
		want   string // in the error
	}{
		"nothing there":          {nil, "connection refused"},
		"closes at once":         {func(net.Conn) {}, "no HTTP/2 server answers"},
		"never answers":          {silent, "deadline exceeded"},
		"noise":                  {says(noise), "no HTTP/2 server answers"},
		"HTTP/1":                 {says([]byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")), "no HTTP/2 server answers"},
		"a greeting of SSH":      {says([]byte("SSH-2.0-OpenSSH_9.9\r\n")), "no HTTP/2 server answers"},
		"HTTP/2, not gRPC":       {serves(page{":status 404\ncontent-type text/plain", "not found", ""}), "404"},
		"an empty page":          {serves(page{":status 200", "", ""}), "content-type"},
		"no message":             {serves(replies("")), "has no message"},
		"half a message":         {serves(replies("\x00\x00\x00\x00\x09half")), "says that its message has"},
		"a message of 2 GiB":     {serves(replies("\x00\x7f\xff\xff\xf0half")), "says that its message has"},
		"a message of 4 GiB":     {serves(replies("\x00\xff\xff\xff\xffhalf")), "says that its message has"},
		"compressed, so it says": {serves(replies("\x01\x00\x00\x00\x04half")), "compress"},
		"no protobuf":            {serves(replies("\x00\x00\x00\x00\x04half")), "reply of the server"},
		"two messages":           {serves(replies("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")), "says that its message has"},
	} {
		t.Run(name, func(t *testing.T) {
			inDialects(t, func(t *testing.T, d client.Dialect) { meetBadServer(t, d, c.server, c.want) })
			in(t, func(t *testing.T, d client.Dialect) { meetBadServer(t, d, c.server, c.want) }, client.Auto)
		})
	}
}

// meetBadServer tries to join what is no service, and checks that it ends in time and says why.
func meetBadServer(t *testing.T, d client.Dialect, server badServer, want string) {
	o := client.DialOptions{Connect: server.connect}
	if server == nil {
		o.Connect = func(context.Context, string) (net.Conn, error) { return nil, errors.New("connection refused") }
	}
	transport, err := client.Dial("bad:1", o)
	if err != nil {
		t.Fatalf("Dial() = %v", err)
	}
	defer transport.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	start := time.Now()
	m, err := client.Join(ctx, client.Config{Task: worker(0), Transport: transport, Dialect: d})
	if err == nil {
		m.Close()
		t.Fatal("Join() = nil; want an error")
	}
	if got := time.Since(start); got > time.Minute {
		t.Errorf("Join() took %v; want no longer than its context", got)
	}
	text := err.Error()
	if d != client.Serry && d != client.Auto { // where it answers, stock dialects make something of it
		return
	}
	if !strings.Contains(text, want) {
		t.Errorf("Join() = %v; want %q in it", err, want)
	}
}

func TestAddressThatIsNone(t *testing.T) {
	lab.Clause(t, "T-AG-40")
	for _, cfg := range []client.Config{
		{},
		{Address: "a b://%"},
		{Address: "x:1", Task: worker(-1)},
		{Address: "x:1", Dialect: 17},
		{Address: "x:1", RegisterTimeout: -1},
	} {
		if m, err := client.Join(t.Context(), cfg); err == nil {
			m.Close()
			t.Errorf("Join(%+v) = nil; want an error", cfg)
		}
	}
}

func TestRepliesOfTheWrongType(t *testing.T) {
	lab.Clause(t, "T-AG-43", "T-AG-53")
	wrong := []coord.Result{
		coord.Done{}, coord.Registered{Service: scripted}, coord.Passed{}, coord.Value{}, coord.Entries{}, coord.Changes{},
		&coord.Picture{}, &coord.Alive{}, coord.AllDevices{},
	}
	calls := map[string]struct {
		right coord.Result
		call  func(ctx context.Context, k *task) error
	}{
		"Wait":    {coord.Value{}, func(ctx context.Context, k *task) error { _, err := k.KV().Wait(ctx, "k"); return err }},
		"Get":     {coord.Value{}, func(ctx context.Context, k *task) error { _, err := k.KV().Get(ctx, "k"); return err }},
		"Add":     {nil, func(ctx context.Context, k *task) error { _, err := k.KV().Add(ctx, "k", 1); return err }},
		"List":    {coord.Entries{}, func(ctx context.Context, k *task) error { _, err := k.KV().List(ctx, "k"); return err }},
		"Barrier": {coord.Passed{}, func(ctx context.Context, k *task) error { return k.Barrier(ctx, "b", serry.BarrierOptions{}) }},
		"Agree":   {&coord.Alive{}, func(ctx context.Context, k *task) error { _, err := k.Agree(ctx, nil, worker(0)); return err }},
		"Tasks":   {&coord.Picture{}, func(ctx context.Context, k *task) error { _, err := k.Tasks(ctx); return err }},
		"Watch": {&coord.Picture{}, func(ctx context.Context, k *task) error {
			for _, err := range k.Watch(ctx) {
				return err
			}
			return nil
		}},
		"KV.Watch": {coord.Changes{}, func(ctx context.Context, k *task) error {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			for _, err := range k.KV().Watch(ctx, "d") {
				return err
			}
			return nil
		}},
	}
	for name, c := range calls {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent coord.Result
				k, _ := play(t, client.Serry, func(_ context.Context, ev coord.Event) answer {
					switch ev.(type) {
					case coord.RegisterTask, coord.Heartbeat, coord.PollForError:
						return answer{}
					}
					return answer{result: sent}
				})
				for _, sent = range wrong {
					if err := c.call(t.Context(), k); err == nil && fmt.Sprintf("%T", sent) != fmt.Sprintf("%T", c.right) {
						t.Errorf("%s that is answered with %T = nil; want an error", name, sent)
					}
				}
			})
		})
	}
}

func TestWatchesOfABadService(t *testing.T) {
	lab.Clause(t, "T-AG-43")
	synctest.Test(t, func(t *testing.T) {
		k, s := play(t, client.Serry, func(_ context.Context, ev coord.Event) answer {
			switch ev.(type) {
			case coord.WatchTasks:
				return answer{result: &coord.Picture{Version: 5, Tasks: []serry.TaskInfo{{Task: worker(0)}}}}
			case coord.WatchKeys:
				return answer{result: coord.Changes{Revision: 5}}
			}
			return answer{}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		told := 0
		for _, err := range k.Watch(ctx) {
			if err == nil {
				told++
				continue
			}
			wantIs(t, "Watch()", err, context.DeadlineExceeded)
		}
		for _, err := range k.KV().Watch(ctx, "d") {
			wantIs(t, "KV.Watch()", err, context.DeadlineExceeded)
		}
		if got := len(seen[coord.WatchTasks](s)); told != 1 || got > 100 {
			t.Errorf("a service that says the same all the time was asked %d times in a minute, the watcher told %d times; want at most 100 and 1", got, told)
		}
	})
}

func TestRepliesOfNoise(t *testing.T) {
	lab.Clause(t, "T-AG-43")
	inDialects(t, func(t *testing.T, d client.Dialect) {
		random := rand.New(rand.NewPCG(1, 2))
		k, _ := play(t, d, func(_ context.Context, ev coord.Event) answer {
			switch ev.(type) {
			case coord.RegisterTask, coord.Heartbeat, coord.PollForError:
				return answer{}
			}
			body := make([]byte, 1+random.IntN(64))
			for i := range body {
				body[i] = byte(random.Uint32())
			}
			return answer{body: bytes.Clone(body)}
		})
		for range 2000 { // nothing may crash, whatever comes of it
			k.KV().Get(t.Context(), "k")
			k.KV().List(t.Context(), "k")
			k.KV().Add(t.Context(), "k", 1)
			k.Agree(t.Context(), nil, worker(0))
			k.Tasks(t.Context())
			k.meet("b", barrier)
		}
		k.lives(t)
	})
}
