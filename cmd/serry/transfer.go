package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/serry-dev/serry/transfer/jax"
	"github.com/serry-dev/serry/transfer/npy"
	"github.com/serry-dev/serry/transfer/offer"
)

func newTransfer() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "transfer",
		Short: "Move arrays between a running JAX process and files",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			return hinted{errors.New("transfer: which way is not said"), "serry transfer pull, or serry transfer serve"}
		},
	}
	cmd.AddCommand(newTransferPull(), newTransferServe())
	return cmd
}

// A transferArray is an array of an offer.
type transferArray struct {
	Index int    `json:"index"`
	Array string `json:"array"` // f32[3,4]
	Bytes int64  `json:"bytes"`
	File  string `json:"file"`
}

// arrayTable is a table of arrays.
func arrayTable(all []transferArray) *table {
	t := &table{columns: []column{{title: "INDEX", right: true}, {title: "ARRAY"}, {title: "BYTES", right: true}, {title: "FILE"}}}
	for _, a := range all {
		t.rows = append(t.rows, []cell{{text: strconv.Itoa(a.Index)}, {text: a.Array}, {text: strconv.FormatInt(a.Bytes, 10)}, {text: a.File}})
	}
	return t
}

// A transferPull is the command that fetches arrays of a JAX process.
type transferPull struct {
	printer
	to    string
	force bool
	cfg   jax.Config
	waits time.Duration
}

func newTransferPull() *cobra.Command {
	p := &transferPull{}
	cmd := &cobra.Command{
		Use:   "pull address id array...",
		Short: "Fetch arrays that a JAX process offers, into .npy files",
		Long: `Fetch arrays that a JAX process offers with jax.experimental.transfer:

  server = transfer.start_transfer_server(device.client, "10.0.0.7:8471", ["10.0.0.7:0"] * 4)
  server.await_pull(7, [weights, bias])

Shapes do not travel, so each array is described in the order of the offer: its
element type and its shape, such as f32[3,4]. A list may be shorter than the offer.
The files are named ID-INDEX.npy. Elements that numpy has no type for, such as bf16,
are saved as numpy saves them: load the file and view it as that type.

The pull waits for an offer that is not there yet, up to --timeout.`,
		Example: `  serry transfer pull 10.0.0.7:8471 7 f32[1024,1024] f32[1024]
  serry transfer pull 10.0.0.7:8471 7 u8[5000003] --to /tmp/weights --timeout 1m -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 3 {
				return fmt.Errorf("%d arguments: want an address, an id, and at least one array", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			arrays, wants, err := p.read(args)
			if err = errors.Join(err, p.printer.open(cmd)); err != nil {
				return seeHelp(cmd, err)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return failed(p.run(ctx, args[0], arrays, wants))
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&p.to, "to", ".", "`folder` for the files")
	f.BoolVar(&p.force, "force", false, "replace files that are there")
	f.IntVar(&p.cfg.Lanes, "lanes", 4, "`number` of connections for data, at most")
	f.DurationVar(&p.waits, "timeout", 5*time.Minute, "how long to wait for all arrays")
	p.printer.define(cmd)
	return cmd
}

// A wanted is an array that is described on the command line.
type wanted struct {
	id     offer.ID
	extent extent
	file   string
	data   []byte
}

// read reads the arguments.
func (p *transferPull) read(args []string) ([]transferArray, []wanted, error) {
	id, err := strconv.ParseUint(args[1], 10, 64)
	if err != nil {
		return nil, nil, fmt.Errorf("id %q: want a number", args[1])
	}
	if _, err := netip.ParseAddrPort(args[0]); err != nil {
		return nil, nil, fmt.Errorf("address %q: want one like 10.0.0.7:8471 or [fd00::7]:8471", args[0])
	}
	var arrays []transferArray
	var all []wanted
	for i, text := range args[2:] {
		e, err := readExtent(text)
		if err != nil {
			return nil, nil, err
		}
		file := filepath.Join(p.to, fmt.Sprintf("%d-%d.npy", id, i))
		all = append(all, wanted{id: offer.ID(id), extent: e, file: file})
		arrays = append(arrays, transferArray{Index: i, Array: e.text(), Bytes: int64(e.bytes()), File: file})
	}
	return arrays, all, nil
}

// bytes is how many bytes an array has.
func (e extent) bytes() int {
	n := e.element.Bytes
	for _, s := range e.shape {
		n *= s
	}
	return n
}

// text is an array as JAX prints it.
func (e extent) text() string {
	name := e.element.Name
	for short, el := range elements {
		if el == e.element {
			name = short
		}
	}
	return shapeText(name, e.shape)
}

// shapeText is an element type with a shape.
func shapeText(name string, shape []int) string {
	sizes := make([]string, len(shape))
	for i, n := range shape {
		sizes[i] = strconv.Itoa(n)
	}
	return name + "[" + strings.Join(sizes, ",") + "]"
}

// npyTypes are the element types that numpy has, by the names of JAX. Others are saved as bytes.
var npyTypes = map[string]string{
	"bool": "|b1", "int8": "|i1", "int16": "<i2", "int32": "<i4", "int64": "<i8",
	"uint8": "|u1", "uint16": "<u2", "uint32": "<u4", "uint64": "<u8",
	"float16": "<f2", "float32": "<f4", "float64": "<f8", "complex64": "<c8", "complex128": "<c16",
}

// header is what stands before the elements in a file.
func (e extent) header() npy.Header {
	h := npy.Header{Type: npyTypes[e.element.Name], Shape: e.shape}
	switch {
	case h.Type == "" && e.element.Bytes == 1:
		h.Type = "|V1"
	case h.Type == "":
		h.Type = fmt.Sprintf("<V%d", e.element.Bytes)
	}
	return h
}

// run pulls the arrays and writes the files.
func (p *transferPull) run(ctx context.Context, address string, arrays []transferArray, all []wanted) error {
	for _, w := range all {
		if _, err := os.Lstat(w.file); err == nil && !p.force {
			return hinted{fmt.Errorf("%s is there already", w.file), "--force replaces it, --to names another folder"}
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.waits, fmt.Errorf("nothing came within --timeout %v", p.waits))
	defer cancel()
	conn, err := jax.Dial(ctx, address, p.cfg)
	if err != nil {
		return fmt.Errorf("transfer server at %s: %w", address, err)
	}
	defer conn.Close()
	total := int64(0)
	wants := make([]jax.Want, len(all))
	for i := range all {
		all[i].data = make([]byte, all[i].extent.bytes())
		wants[i] = jax.Want{Index: i, Into: all[i].data}
		total += arrays[i].Bytes
	}
	stop := p.progress(conn, total)
	err = conn.Pull(ctx, all[0].id, wants)
	stop()
	if err != nil {
		return err
	}
	for _, w := range all {
		if err := w.save(); err != nil {
			return err
		}
	}
	answer := struct {
		Version int             `json:"version"`
		Offer   string          `json:"offer"` // a string, because numbers of 64 bits are cut by some readers of JSON
		Arrays  []transferArray `json:"arrays"`
	}{outputVersion, strconv.FormatUint(uint64(all[0].id), 10), arrays}
	if done, err := p.object(answer); done {
		return err
	}
	return p.table(arrayTable(arrays))
}

// save writes the file of an array. It has its name only when it is complete.
func (w wanted) save() error {
	f, err := os.CreateTemp(filepath.Dir(w.file), ".serry-*.npy")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(w.extent.header().Append(nil))
	if err == nil {
		_, err = f.Write(w.data)
	}
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), w.file)
}

// progressEvery is how often a long pull says how far it is.
const progressEvery = 2 * time.Second

// progress says how far a pull is, until the returned function is called.
func (p *transferPull) progress(conn *jax.Conn, total int64) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		before := int64(0)
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				now := conn.Received()
				rate := float64(now-before) / progressEvery.Seconds() / (1 << 20)
				fmt.Fprintf(p.errors, "serry: %d of %d MiB, %.0f MiB/s\n", now>>20, total>>20, rate)
				before = now
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// A transferServe is the command that offers arrays to JAX processes.
type transferServe struct {
	printer
	listen string
	allow  []string
	id     uint64
	times  int
	lasts  time.Duration
	chunk  size
	cfg    jax.Config
}

func newTransferServe() *cobra.Command {
	s := &transferServe{chunk: 1 << 20}
	cmd := &cobra.Command{
		Use:   "serve file.npy...",
		Short: "Offer the arrays of .npy files to JAX processes",
		Long: `Offer the arrays of .npy files to JAX processes, which pull them with
jax.experimental.transfer:

  connection = server.connect("10.0.0.7:8471")
  weights, bias = connection.pull(7, [weights_like, bias_like])

The command ends when each array has been fetched --times times. With --times 0 it
serves until it is stopped. The protocol has neither certificates nor secrets: it
listens on this host alone, unless --allow names the peers that may connect.`,
		Example: `  serry transfer serve weights.npy bias.npy --id 7
  serry transfer serve weights.npy --listen 10.0.0.7:8471 --allow 10.0.0.0/24 --times 0`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("no files: want at least one .npy file")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(s.check(cmd), s.printer.open(cmd)); err != nil {
				return seeHelp(cmd, err)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return failed(s.run(ctx, args))
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&s.listen, "listen", "127.0.0.1:0", "`address` that JAX processes connect to; port 0 means a free one")
	f.StringSliceVar(&s.allow, "allow", nil, "`networks` whose hosts may connect, such as 10.0.0.0/24")
	f.Uint64Var(&s.id, "id", 0, "`number` of the offer, which the other side names (default: a random one)")
	f.IntVar(&s.times, "times", 1, "how often each array can be fetched; 0 means until the command is stopped")
	f.DurationVar(&s.lasts, "for", 0, "how long the offer lasts; 0 means without end")
	f.IntVar(&s.cfg.Lanes, "lanes", 4, "`number` of connections for data, at most")
	f.Var(&s.chunk, "chunk", "`bytes` that are sent at once, at most transfer_size of the JAX process")
	s.printer.define(cmd)
	return cmd
}

// check reads the flags.
func (s *transferServe) check(cmd *cobra.Command) error {
	if s.times < 0 || s.lasts < 0 {
		return errors.New("--times and --for: want 0 or more")
	}
	if !cmd.Flags().Changed("id") {
		s.id = rand.Uint64()>>1 | 1<<62 // far from the small numbers that programs count
	}
	s.cfg.ChunkBytes = int(min(s.chunk, math.MaxInt32))
	for _, text := range s.allow {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("--allow %q: want networks like 10.0.0.0/24", text)
		}
		s.cfg.Allow = append(s.cfg.Allow, p)
	}
	return nil
}

// run serves the files.
func (s *transferServe) run(ctx context.Context, names []string) error {
	o := jax.Offer{ID: offer.ID(s.id), Times: s.times}
	if s.times == 0 {
		o.Times = offer.Unlimited
	}
	if s.lasts > 0 {
		o.Until = time.Now().Add(s.lasts)
	}
	var arrays []transferArray
	for i, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		array, buffer, err := openArray(f)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		array.Index = i
		arrays, o.Buffers = append(arrays, array), append(o.Buffers, buffer)
	}
	server, err := jax.Listen(s.listen, s.cfg)
	if err != nil {
		return err
	}
	defer server.Close()
	offered, err := server.Offer(o)
	if err != nil {
		return err
	}
	if err := s.tellOffer(server.Address(), arrays); err != nil {
		return err
	}
	return s.await(ctx, server, offered)
}

// openArray is the array of a file.
func openArray(f *os.File) (a transferArray, b jax.Buffer, err error) {
	info, err := f.Stat()
	if err != nil {
		return a, b, err
	}
	h, offset, err := npy.Read(f, info.Size())
	if err != nil {
		return a, b, err
	}
	bytes, err := h.Bytes()
	if err != nil {
		return a, b, err
	}
	a = transferArray{Array: shapeText(elementName(h.Type), h.Shape), Bytes: bytes, File: f.Name()}
	return a, jax.Buffer{File: io.NewSectionReader(f, offset, bytes), Size: bytes}, nil
}

// elementName is the short name of an element type of a file, or the type itself where JAX has none.
func elementName(npyType string) string {
	for short, e := range elements {
		if npyTypes[e.Name] == npyType {
			return short
		}
	}
	return npyType
}

// tellOffer prints what is offered.
func (s *transferServe) tellOffer(address string, arrays []transferArray) error {
	answer := struct {
		Version int             `json:"version"`
		Address string          `json:"address"`
		Offer   string          `json:"offer"`
		Arrays  []transferArray `json:"arrays"`
	}{outputVersion, address, strconv.FormatUint(s.id, 10), arrays}
	if done, err := s.line(answer); done {
		return err
	}
	fmt.Fprintf(s.out, "offer %d at %s\n", s.id, address)
	return s.table(arrayTable(arrays))
}

// await tells of deliveries until the offer is over or a signal comes.
func (s *transferServe) await(ctx context.Context, server *jax.Server, offered *jax.Offered) error {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	tell := func() {
		for _, d := range offered.TakeDeliveries() {
			if d.Err != nil {
				fmt.Fprintf(s.errors, "serry: array %d did not reach %s: %v\n", d.Index, d.Peer, d.Err)
				continue
			}
			fmt.Fprintf(s.errors, "serry: array %d went to %s\n", d.Index, d.Peer)
		}
	}
	for {
		select {
		case <-ticker.C:
			tell()
		case <-offered.Done():
			tell()
			linger(ctx, server)
			return offered.Err()
		case <-ctx.Done():
			server.Withdraw(offer.ID(s.id))
			<-offered.Done()
			if tell(); s.times == 0 {
				return nil
			}
			return errors.New("stopped before all arrays were fetched")
		}
	}
}

// lastReads is how long a process that has fetched the last array may take to read it from its sockets.
const lastReads = 2 * time.Second

// linger keeps the connections of processes for a while after the last array was sent. The protocol has no word for "I have it", and
// JAX gives up what it has not read yet when the connection on which it asked is closed.
func linger(ctx context.Context, server *jax.Server) {
	ctx, cancel := context.WithTimeout(ctx, lastReads)
	defer cancel()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for len(server.Conns()) > 0 {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
