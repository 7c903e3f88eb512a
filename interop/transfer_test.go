package interop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab/clause"
	"github.com/serry-dev/serry/transfer/jax"
	offers "github.com/serry-dev/serry/transfer/offer"
)

// A mover is a JAX process with a transfer server.
type mover struct {
	*process
	address string
}

// startMover starts one with so many lanes, which sends and takes chunks of so many bytes.
func startMover(t *testing.T, lanes, chunk int) *mover {
	t.Helper()
	skipShort(t)
	beside(t, 1)
	env := append(os.Environ(), "JAX_PLATFORMS=cpu")
	p := start(t, "jax", env, jaxNew.python(t), "testdata/transfer.py", fmt.Sprint(lanes), fmt.Sprint(chunk))
	m := &mover{process: p}
	m.answer(&m.address)
	return m
}

// call asks for something.
func (m *mover) call(method string, args ...any) {
	m.t.Helper()
	line, err := json.Marshal(map[string]any{"call": method, "args": append([]any{}, args...)})
	if err != nil {
		m.t.Fatal(err)
	}
	m.tell(string(line))
}

// answer reads what it answers; the error is its exception.
func (m *mover) answer(value any) error {
	m.t.Helper()
	var a struct {
		Value json.RawMessage
		Error string
	}
	if err := json.Unmarshal([]byte(m.line()), &a); err != nil {
		m.t.Fatal(err)
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	if value != nil {
		if err := json.Unmarshal(a.Value, value); err != nil {
			m.t.Fatal(err)
		}
	}
	return nil
}

// must asks for something that succeeds.
func (m *mover) must(value any, method string, args ...any) {
	m.t.Helper()
	m.call(method, args...)
	if err := m.answer(value); err != nil {
		m.t.Fatalf("jax: %s(%v): %v", method, args, err)
	}
}

// An array is one whose bytes follow from its description, here and in transfer.py.
type array struct {
	dtype string
	shape []int
	seed  int
}

// MarshalJSON implements [json.Marshaler].
func (a array) MarshalJSON() ([]byte, error) { return json.Marshal([]any{a.dtype, a.shape, a.seed}) }

var widths = map[string]int{
	"bool": 1, "uint8": 1, "int8": 1, "float8_e4m3fn": 1, "int16": 2, "bfloat16": 2, "float16": 2, "int32": 4, "float32": 4,
	"float64": 8, "int64": 8, "complex64": 8, "complex128": 16,
}

// bytes are the elements of an array.
func (a array) bytes() []byte {
	size := widths[a.dtype]
	for _, n := range a.shape {
		size *= n
	}
	row := make([]byte, min(size, 1_000_003))
	for i := range row {
		row[i] = byte(uint64(i) * uint64(2*a.seed+1) >> 3)
		if a.dtype == "bool" {
			row[i] &= 1
		}
	}
	data := make([]byte, 0, size+len(row))
	for len(data) < size {
		data = append(data, row...)
	}
	return data[:size]
}

// sum is a checksum of bytes, as the JAX process makes it.
func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// arrays are of several types and shapes.
var arrays = []array{
	{"uint8", []int{5_000_003}, 1}, {"float32", []int{3, 4}, 2}, {"bool", []int{17}, 3}, {"int8", []int{1024}, 4}, {"float8_e4m3fn", []int{7, 3}, 5},
	{"int16", []int{5}, 6}, {"bfloat16", []int{33, 65}, 7}, {"float16", []int{1}, 8}, {"int32", []int{2, 3, 4, 5}, 9}, {"float64", []int{1, 100_000}, 10},
	{"int64", []int{}, 11}, {"complex64", []int{9}, 12}, {"complex128", []int{3, 3}, 13},
}

// pullAll pulls arrays, and holds them to what they should be.
func pullAll(t *testing.T, c *jax.Conn, id offers.ID, all ...array) {
	t.Helper()
	var wants []jax.Want
	for i, a := range all {
		wants = append(wants, jax.Want{Index: i, Into: make([]byte, len(a.bytes()))})
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.Pull(ctx, id, wants); err != nil {
		t.Fatalf("Pull(%d) = %v", id, err)
	}
	for i, a := range all {
		if !bytes.Equal(wants[i].Into, a.bytes()) {
			t.Errorf("%v: other bytes than those of jax", a)
		}
	}
}

// dialMover connects with a JAX process.
func dialMover(t *testing.T, m *mover, cfg jax.Config) *jax.Conn {
	t.Helper()
	c, err := jax.Dial(t.Context(), m.address, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// offerTo offers arrays to JAX processes.
func offerTo(t *testing.T, s *jax.Server, id offers.ID, all ...array) *jax.Offered {
	t.Helper()
	o := jax.Offer{ID: id}
	for _, a := range all {
		o.Buffers = append(o.Buffers, jax.Buffer{Bytes: a.bytes()})
	}
	offered, err := s.Offer(o)
	if err != nil {
		t.Fatal(err)
	}
	return offered
}

// listen starts a server for JAX processes.
func listen(t *testing.T, cfg jax.Config) *jax.Server {
	t.Helper()
	s, err := jax.Listen("127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// pullsAll has JAX pull arrays, and holds them to what they should be.
func (m *mover) pullsAll(address string, id offers.ID, all ...array) {
	m.t.Helper()
	var got []string
	m.must(&got, "pull", address, id, all)
	for i, a := range all {
		if want := sum(a.bytes()); got[i] != want {
			m.t.Errorf("jax has other bytes of %v than were offered", a)
		}
	}
}

func TestTransferFromJax(t *testing.T) {
	clause.Cite(t, "TRT-153", "TR-W-37", "TR-W-14", "TR-W-15", "TR-W-16", "TR-PUL-2")
	m := startMover(t, 4, 1<<20)
	c := dialMover(t, m, jax.Config{})
	m.must(nil, "offer", 7, arrays)
	pullAll(t, c, 7, arrays...)

	m.call("offer", 8, arrays[:2]) // the pull may be there before the offer
	pullAll(t, c, 8, arrays[:2]...)
	if err := m.answer(nil); err != nil {
		t.Fatal(err)
	}
	err := c.Pull(t.Context(), 8, []jax.Want{})
	if err != nil {
		t.Errorf("Pull(nothing) = %v", err)
	}
	m.must(nil, "offer", 9, arrays[:2])
	twice := []jax.Want{{Index: 1, Into: make([]byte, 48)}, {Index: 1, Into: make([]byte, 48)}, {Index: 5, Into: make([]byte, 48)}}
	err = c.Pull(t.Context(), 9, twice)
	for _, want := range []string{"has already been fetched", "out of range"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Pull(a buffer twice, and one that is not there) = %v; want %q", err, want)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := c.Pull(ctx, 10, []jax.Want{{Into: make([]byte, 8)}}); err == nil { // jax itself would wait for ever (TR-H-2)
		t.Error("Pull(no offer) = nil; want an error after a second")
	}
	m.must(nil, "offer", 11, arrays[:1])
	pullAll(t, c, 11, arrays[0])
	m.leaves()
}

// Requests and offers that expire, and buffers without bytes. Offers of JAX do not expire: a request to it does.
func TestTransferExpiresBesideJax(t *testing.T) {
	clause.Cite(t, "TRT-113", "TRT-114", "TRT-160", "TR-PUL-8", "TR-PUL-9", "TR-PUL-13", "TR-H-1", "TR-H-2", "TR-W-30")
	m := startMover(t, 4, 1<<20)
	c := dialMover(t, m, jax.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := c.Pull(ctx, 20, []jax.Want{{Into: make([]byte, 48)}}); err == nil {
		t.Error("Pull(no offer) = nil; want an error after half a second")
	}
	m.must(nil, "offer", 20, arrays[1:2]) // which the request that has expired must not take
	pullAll(t, c, 20, arrays[1])

	none := array{"float32", []int{0, 7}, 1}
	m.must(nil, "offer", 21, []array{none, arrays[1], none})
	pullAll(t, c, 21, none, arrays[1], none)

	s := listen(t, jax.Config{})
	expired, err := s.Offer(jax.Offer{ID: 30, Buffers: []jax.Buffer{{Bytes: arrays[1].bytes()}}, Until: time.Now().Add(100 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	<-expired.Done()
	if err := expired.Err(); !errors.Is(err, offers.ErrExpired) {
		t.Errorf("the producer of an offer that expired hears %v; want ErrExpired", err)
	}
	m.call("pull", s.Address(), 30, arrays[1:2]) // it waits, as if there had been no offer
	offerTo(t, s, 30, arrays[1])
	if err := m.answer(nil); err != nil {
		t.Errorf("jax: pull of a new offer after one that expired: %v", err)
	}
	m.call("pull", s.Address(), 31, arrays[1:2])
	ended := make(chan struct{})
	go func() { // the request may come late: what has come is refused, again and again
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.Reset()
			case <-ended:
				return
			}
		}
	}()
	err = m.answer(nil)
	close(ended)
	if err == nil || !strings.Contains(err.Error(), "PullTable::Reset") {
		t.Errorf("jax: pull of what was reset: %v; want the text of that", err)
	}
	offerTo(t, s, 32, arrays[1])
	m.pullsAll(s.Address(), 32, arrays[1])
	m.leaves()
}

// TestTransferToJax has one JAX process pull in all ways: it must survive all of them.
func TestTransferToJax(t *testing.T) {
	m := startMover(t, 4, 8<<20)
	for _, lanes := range []int{4, 2, 7} { // jax has four, and aborts if it is offered more
		t.Run(fmt.Sprint(lanes, " lanes"), func(t *testing.T) { transferToJax(t, m, lanes) })
	}
	t.Run("errors", func(t *testing.T) { transferErrors(t, m) })
	t.Run("what kills jax", func(t *testing.T) { transferHostile(t, m) })
	t.Run("backwards", func(t *testing.T) { transferBackwards(t, m) })
	m.leaves()
}

func transferToJax(t *testing.T, m *mover, lanes int) {
	clause.Cite(t, "TRT-154", "TRT-156", "TRT-159", "TR-W-9", "TR-W-10", "TR-W-11", "TR-W-12", "TR-W-33", "TR-W-17", "TR-W-19", "TR-ERR-6")
	s := listen(t, jax.Config{Lanes: lanes})
	offered := offerTo(t, s, 9, arrays...)
	m.pullsAll(s.Address(), 9, arrays...)
	<-offered.Done()
	many := slices.Repeat(arrays[1:2], 70)
	offerTo(t, s, 10, many...)
	m.pullsAll(s.Address(), 10, many...)

	m.call("pull", s.Address(), 11, arrays[:1]) // before the offer
	offerTo(t, s, 11, arrays[0])
	if err := m.answer(nil); err != nil {
		t.Errorf("jax: pull before the offer: %v", err)
	}
	conn := s.Conns()[0]
	m.must(nil, "drop", s.Address())
	select {
	case <-conn.Done():
	case <-time.After(patience):
		t.Error("the connection is there after jax has dropped it")
	}
}

func transferErrors(t *testing.T, m *mover) {
	clause.Cite(t, "TRT-155", "TRT-157", "TRT-160", "TR-W-17", "TR-W-20", "TR-W-30", "TR-H-1")
	s := listen(t, jax.Config{})
	offerTo(t, s, 1, arrays[1])
	offerTo(t, s, 2, array{"float32", []int{0}, 1})
	offerTo(t, s, 3, array{"uint8", []int{100}, 1})
	for _, c := range []struct {
		id   offers.ID
		like []array
		want string
	}{
		{1, []array{arrays[1], arrays[1]}, "out of range"},
		{2, []array{{"float32", []int{0}, 1}}, "has no bytes"},
		{3, []array{{"uint8", []int{90}, 1}}, ""}, // larger than the memory for it
	} {
		m.call("pull", s.Address(), c.id, c.like)
		if err := m.answer(nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("jax: pull(%d, %v): %v; want %q", c.id, c.like, err, c.want)
		}
	}
	offerTo(t, s, 4, arrays[0])
	m.pullsAll(s.Address(), 4, arrays[0]) // jax lives, and so does its connection
}

// transferBackwards pulls from a JAX process on the connection that it has dialled.
func transferBackwards(t *testing.T, m *mover) {
	clause.Cite(t, "TRT-161", "TR-W-21")
	s := listen(t, jax.Config{})
	offerTo(t, s, 1, arrays[1])
	m.pullsAll(s.Address(), 1, arrays[1])
	m.must(nil, "offer", 2, arrays)
	pullAll(t, s.Conns()[0], 2, arrays...)
}

// largest is how large the largest array is.
var largest = flag.Int("largest", 128, "`MiB` of the largest array that tests of transfers move")

func TestTransferOfALargeArray(t *testing.T) {
	clause.Cite(t, "TR-W-18")
	m := startMover(t, 4, 16<<20)
	large := array{"float32", []int{*largest << 18}, 3}
	m.must(nil, "offer", 1, []array{large})
	c := dialMover(t, m, jax.Config{})
	pullAll(t, c, 1, large)
	m.must(nil, "forget")
	s := listen(t, jax.Config{})
	offerTo(t, s, 2, large)
	m.pullsAll(s.Address(), 2, large)
	m.leaves()
}

// transferHostile sends a server the bytes that end or stop a stock JAX process, and has JAX pull from it meanwhile.
func transferHostile(t *testing.T, m *mover) {
	clause.Cite(t, "TR-H-8", "TR-H-11", "TRT-162", "TR-W-26")
	s := listen(t, jax.Config{})
	lane := ""
	for _, words := range []string{
		"\x00\x00\x00\x00",                  // a message of no kind
		"\x02\x00\x00\x00\x32\x00",          // one of an unknown kind
		"\xff\xff\xff\xff",                  // a frame of 4 GiB
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n", // another protocol
		"\x02\x00\x00\x00\x1a\x00",          // a handshake, and lanes that say nothing
	} {
		conn, err := net.Dial("tcp", s.Address())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, words); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(words, "\x1a\x00") {
			lane = laneOf(t, conn)
		}
	}
	for range 3 {
		conn, err := net.Dial("tcp", lane)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	offerTo(t, s, 1, arrays...)
	m.pullsAll(s.Address(), 1, arrays...)
}

// laneOf is the address of the first lane in the answer to a handshake.
func laneOf(t *testing.T, conn net.Conn) string {
	t.Helper()
	head := make([]byte, 4)
	if _, err := io.ReadFull(conn, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.LittleEndian.Uint32(head))
	if _, err := io.ReadFull(conn, body); err != nil {
		t.Fatal(err)
	}
	return string(body[4 : 4+body[3]])
}

// TestTransferCommands moves arrays between a JAX process and files.
func TestTransferCommands(t *testing.T) {
	clause.Cite(t, "TR-G-31", "TR-PUL-15")
	m := startMover(t, 4, 1<<20)
	m.must(nil, "offer", 7, arrays[:2])
	dir := t.TempDir()
	pull := exec.Command(os.Getenv("SERRY_BINARY"), "transfer", "pull", m.address, "7", "u8[5000003]", "f32[3,4]", "--to", dir, "-o", "json")
	out, err := pull.Output()
	if err != nil {
		t.Fatalf("%v = %v", pull, err)
	}
	var answer struct {
		Offer  string
		Arrays []struct{ File string }
	}
	if err := json.Unmarshal(out, &answer); err != nil || answer.Offer != "7" || len(answer.Arrays) != 2 {
		t.Fatalf("%v printed %s (%v)", pull, out, err)
	}
	first := filepath.Join(dir, "7-0.npy")
	check := exec.Command(jaxNew.python(t), "-c", "import numpy, sys; a = numpy.load(sys.argv[1]); print(a.dtype, a.shape)", filepath.Join(dir, "7-1.npy"))
	if out, err := check.Output(); err != nil || string(out) != "float32 (3, 4)\n" {
		t.Errorf("numpy reads %s (%v); want float32 (3, 4)", out, err)
	}

	serve := exec.Command(os.Getenv("SERRY_BINARY"), "transfer", "serve", first, filepath.Join(dir, "7-1.npy"), "--id", "9", "-o", "json")
	stdout, err := serve.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { serve.Process.Kill() })
	var offered struct{ Address string }
	if err := json.NewDecoder(stdout).Decode(&offered); err != nil {
		t.Fatal(err)
	}
	m.pullsAll(offered.Address, 9, arrays[:2]...)
	if err := serve.Wait(); err != nil {
		t.Errorf("%v = %v; want it to end when all is fetched", serve, err)
	}
	m.leaves()
}
