package replay

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/server"
)

// A recording is what clients sent to a service, and what that service was told.
type recording struct {
	jobs []coord.Job
	acts []act
}

// An act is one thing that a client did. A connection is open from its first act on.
type act struct {
	at   time.Duration // since the first act, in whole milliseconds
	conn int           // connections count from 0
	sent []byte        // nil: it closed the connection
}

// service is the incarnation of the service in all recordings: clients repeat it in their calls.
const service = 0x5e44_5e44_5e44_5e44

// config is that of the service, when recorded and when replayed.
func (r *recording) config() server.Config {
	return server.Config{
		Cluster: coord.Config{
			Jobs: r.jobs, Service: service,
			RegisterBarrier: true, RegisterTimeout: time.Minute,
			HeartbeatTimeout: time.Minute, ShutdownTimeout: time.Minute,
		},
	}
}

// recordingFile is where the recording of a client lies.
func recordingFile(client string) string { return filepath.Join("testdata", client+".rec") }

// save writes a recording.
func (r *recording) save(path string) error {
	var b bytes.Buffer
	for _, j := range r.jobs {
		fmt.Fprintf(&b, "job %s %d\n", j.Name, j.Tasks)
	}
	for _, a := range r.acts {
		fmt.Fprintf(&b, "%d %d ", a.at.Milliseconds(), a.conn)
		if a.sent == nil {
			fmt.Fprintln(&b, "closed")
			continue
		}
		fmt.Fprintf(&b, "sent %s\n", base64.StdEncoding.EncodeToString(a.sent))
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// load reads a recording.
func load(t *testing.T, path string) *recording {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := new(recording)
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, len(text)+1)
	for n := 1; lines.Scan(); n++ {
		if err := r.line(strings.Fields(lines.Text())); err != nil {
			t.Fatalf("%s:%d: %v", path, n, err)
		}
	}
	return r
}

// line reads one line.
func (r *recording) line(words []string) error {
	if len(words) != 3 && len(words) != 4 {
		return fmt.Errorf("%d words", len(words))
	}
	if words[0] == "job" {
		tasks, err := strconv.Atoi(words[2])
		r.jobs = append(r.jobs, coord.Job{Name: words[1], Tasks: tasks})
		return err
	}
	ms, err := strconv.Atoi(words[0])
	if err != nil {
		return err
	}
	conn, err := strconv.Atoi(words[1])
	if err != nil {
		return err
	}
	a := act{at: time.Duration(ms) * time.Millisecond, conn: conn}
	if words[2] == "sent" && len(words) == 4 {
		if a.sent, err = base64.StdEncoding.DecodeString(words[3]); err != nil {
			return err
		}
	}
	r.acts = append(r.acts, a)
	return nil
}

// byFrame cuts what was sent into single frames: grpc-go serves calls that come together in any
// order, so that only calls that come one by one have one outcome.
func (r *recording) byFrame() *recording {
	whole := &recording{jobs: r.jobs}
	rest := make(map[int][]byte) // of frames that are not complete, by connection
	begun := make(map[int]bool)
	for _, a := range r.acts {
		if a.sent == nil {
			whole.acts = append(whole.acts, a)
			continue
		}
		rest[a.conn] = append(rest[a.conn], a.sent...)
		for {
			n := frameLen(rest[a.conn], begun[a.conn])
			if n == 0 {
				break
			}
			begun[a.conn] = true
			whole.acts = append(whole.acts, act{at: a.at, conn: a.conn, sent: rest[a.conn][:n:n]})
			rest[a.conn] = rest[a.conn][n:]
		}
	}
	return whole
}

const frameHeaderLen = 9

// frameLen is the length of the first frame of b, or of the preface where nothing has begun; 0 if
// it is not complete.
func frameLen(b []byte, begun bool) int {
	n := len(http2.ClientPreface)
	if begun {
		if len(b) < frameHeaderLen {
			return 0
		}
		n = frameHeaderLen + int(b[0])<<16 + int(b[1])<<8 + int(b[2])
	}
	if len(b) < n {
		return 0
	}
	return n
}
