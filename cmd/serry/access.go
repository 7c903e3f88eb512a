package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire"
	"github.com/serry-dev/serry/wire/mtls"
	"github.com/serry-dev/serry/wire/stream"
)

const (
	defaultAddress = "localhost:8476" // where serry serve listens if nothing is said
	defaultPort    = "8476"
	defaultTimeout = 5 * time.Second
)

// access says how a command reaches the service: by flags, variables, or a context file.
type access struct {
	address string
	context string
	timeout time.Duration
	tls     mtls.Files

	unaddressed bool // the command can do without an address
	guessed     bool // nothing names the address, and no job runs here
}

func (a *access) define(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&a.address, "address", "", "`address` of the service: host:port, or unix:/path; several servers of one service with commas between them (default the only job on this host, or \""+defaultAddress+"\")")
	f.StringVar(&a.context, "context", "", "`name` of a context, or path of its file, that says address and TLS files")
	f.DurationVar(&a.timeout, "timeout", defaultTimeout, "how long the service may take to answer")
	f.StringVar(&a.tls.Cert, "tls-cert", "", "PEM `file` with the certificate chain to show")
	f.StringVar(&a.tls.Key, "tls-key", "", "PEM `file` with its private key")
	f.StringVar(&a.tls.CA, "tls-ca", "", "PEM `file` with the roots that the service must chain to")
	f.StringVar(&a.tls.PeerPrefix, "tls-peer-prefix", "", "what a URI name of the service's certificate must begin with")
	_ = cmd.RegisterFlagCompletionFunc("context", completeContexts)
}

// resolve fills in what the command line leaves open: from variables, then from the context, then from the only
// job that runs on this host. A context that the command line names wins over variables.
func (a *access) resolve(cmd *cobra.Command) error {
	given := *a
	if err := fromEnvironment(cmd); err != nil {
		return err
	}
	if cmd.Flags().Lookup("context").Changed && given.context != "" {
		a.address, a.tls = given.address, given.tls
	}
	c, err := findContext(a.context)
	if err != nil {
		return err
	}
	a.address = cmp.Or(a.address, c.Address)
	if a.tls.IsZero() {
		a.tls = c.files()
	}
	if a.timeout <= 0 {
		return fmt.Errorf("--timeout %v: want more than 0", a.timeout)
	}
	if a.address == "" && a.unaddressed {
		return nil
	}
	if a.address == "" {
		return a.settleHere()
	}
	a.address, err = fullAddresses(a.address)
	return err
}

// settleHere takes the only job that runs on this host, or else what may serve at the default address.
func (a *access) settleHere() error {
	e, err := theJob()
	switch {
	case err != nil:
		return err
	case e == nil:
		a.address, a.guessed = defaultAddress, true
		return nil
	}
	a.address = e.Address
	if a.tls.IsZero() {
		a.tls = e.TLS.files()
	}
	return nil
}

// fullAddresses is fullAddress for several, with commas between them.
func fullAddresses(list string) (string, error) {
	var all []string
	for one := range strings.SplitSeq(list, ",") {
		full, err := fullAddress(one)
		if err != nil {
			return "", err
		}
		all = append(all, full)
	}
	return strings.Join(all, ","), nil
}

// fullAddress adds the port where it is left out.
func fullAddress(address string) (string, error) {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		if path == "" {
			return "", fmt.Errorf("address %q: want a path after %s", address, unixPrefix)
		}
		return address, nil
	}
	if host, port, err := net.SplitHostPort(address); err == nil && port != "" && !strings.Contains(port, "/") {
		return net.JoinHostPort(cmp.Or(host, "localhost"), port), nil
	}
	host := strings.Trim(address, "[]")
	if host == "" || strings.Contains(host, "/") || strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return "", fmt.Errorf("address %q: want host:port or unix:/path", address)
	}
	return net.JoinHostPort(host, defaultPort), nil
}

// A remote is the service as a command sees it. A command does not join the job.
type remote struct {
	address   string
	timeout   time.Duration
	transport client.Transport
	broken    context.Context // ended when the other side proves to be no service, with the reason
}

// open connects to the service. What cannot work fails here, at once, instead of being tried again
// until time is up.
func (a *access) open(ctx context.Context) (*remote, error) {
	secure, err := a.secure()
	if err != nil {
		return nil, err
	}
	broken, fail := context.WithCancelCause(context.Background())
	line := dialer{timeout: a.timeout, secure: secure, fail: fail}
	addresses := strings.Split(a.address, ",")
	first, at, err := line.any(ctx, addresses)
	if err != nil {
		return nil, runError{a.unreachable(err)}
	}
	addresses[0], addresses[at] = addresses[at], addresses[0] // so that the transport begins with the one that answers
	transport, err := client.Dial(strings.Join(addresses, ","), client.DialOptions{
		Connect: func(ctx context.Context, address string) (net.Conn, error) {
			if c := first; c != nil {
				first = nil
				return c, nil
			}
			return line.to(address).dial(ctx)
		},
	})
	if err != nil {
		first.Close()
		return nil, runError{err}
	}
	return &remote{address: a.address, timeout: a.timeout, transport: transport, broken: broken}, nil
}

// secure makes the TLS configuration for an address; nil: there is none.
func (a *access) secure() (func(address string) *tls.Config, error) {
	if a.tls.IsZero() {
		return nil, nil
	}
	id, err := mtls.Load(a.tls)
	if err != nil {
		return nil, err
	}
	return func(address string) *tls.Config {
		host, _, _ := net.SplitHostPort(address)
		return id.Client(cmp.Or(host, "localhost"))
	}, nil
}

// unreachable adds what is known to help to the error of a connection.
func (a *access) unreachable(err error) error {
	err = fmt.Errorf("no service at %s: %w", a.address, shortened(err))
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, os.ErrNotExist):
		return hinted{err, "is it running there? --address, SERRY_ADDRESS or a context say where else to look"}
	case isPlain(err):
		return hinted{err, "the service does without TLS: leave out --tls-cert, --tls-key and --tls-ca"}
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return hinted{err, "serry doctor finds out what is in the way"}
	}
	return err
}

// isPlain says whether a handshake failed because the other side spoke something else than TLS.
func isPlain(err error) bool {
	_, ok := errors.AsType[tls.RecordHeaderError](err)
	return ok
}

// shortened leaves out what the error of a dial says about the address, which stands there already.
func shortened(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return op.Err
	}
	return err
}

// A dialer makes connections to one address.
type dialer struct {
	address string
	timeout time.Duration
	secure  func(address string) *tls.Config // or nil
	fail    context.CancelCauseFunc
}

// to is the dialer for another server of the service, which the first one has named.
func (d dialer) to(address string) dialer {
	d.address = address
	return d
}

// any connects to whichever of several servers answers first, and says which one that is. The error is that of one
// that did not refuse, if there is one: it may still come to life.
func (d dialer) any(ctx context.Context, addresses []string) (net.Conn, int, error) {
	if len(addresses) == 1 {
		c, err := d.to(addresses[0]).dial(ctx)
		return c, 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type dialed struct {
		conn net.Conn
		at   int
		err  error
	}
	all := make(chan dialed, len(addresses))
	for i, address := range addresses {
		go func() {
			c, err := d.to(address).dial(ctx)
			all <- dialed{c, i, err}
		}()
	}
	var worst error
	for left := len(addresses); left > 0; left-- {
		one := <-all
		if one.err == nil {
			go func() { // the others are not needed
				for range left - 1 {
					if late := <-all; late.err == nil {
						late.conn.Close()
					}
				}
			}()
			return one.conn, one.at, nil
		}
		if worst == nil || errors.Is(worst, syscall.ECONNREFUSED) {
			worst = one.err
		}
	}
	return nil, 0, worst
}

func (d dialer) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	network, address := "tcp", d.address
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		network, address = "unix", path
	}
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if d.secure == nil {
		return &greeting{Conn: c, fail: d.fail}, nil
	}
	tc := tls.Client(c, d.secure(d.address))
	if err := tc.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return &greeting{Conn: tc, fail: d.fail}, nil
}

// A greeting is a connection whose first answer is looked at: who is no coordination service shows
// it there. gRPC would only try again.
type greeting struct {
	net.Conn
	fail  context.CancelCauseFunc
	heard bool        // used by the one who reads
	ours  atomic.Bool // it was asked whether it speaks serry's stream; to hang up is an answer
}

func (g *greeting) Write(b []byte) (int, error) {
	if len(b) > 0 && b[0] == stream.Preface[0] {
		g.ours.Store(true)
	}
	return g.Conn.Write(b)
}

func (g *greeting) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if g.heard {
		return n, err
	}
	g.heard = true
	switch {
	case n > 0 && b[0] == tlsAlert:
		g.fail(hinted{errWantsTLS, tlsHint})
	case n > 0 && b[0] == 'H': // HTTP/1.1 400 Bad Request
		g.fail(errors.New("it is a web server, not a coordination service"))
	case n > 0 || errors.Is(err, net.ErrClosed) || g.ours.Load():
	case errors.Is(err, io.EOF):
		g.fail(hinted{errSaidNothing, "perhaps it wants TLS: " + tlsHint})
	default:
		g.fail(fmt.Errorf("it closed the connection: %w", err))
	}
	return n, err
}

// errWantsTLS says that a server wants certificates, of which this command has none.
var errWantsTLS = errors.New("it wants TLS")

// errSaidNothing says that a server ended the connection without an answer. One that wants certificates may do so.
var errSaidNothing = errors.New("it closed the connection and said nothing")

const (
	tlsAlert = 0x15 // first byte of a TLS record that says what is wrong

	leaderHint = "no server of the service leads: start those that are down, a majority of them must run"
	tlsHint    = "give --tls-cert, --tls-key and --tls-ca, or a context with them"
)

// do makes one call and returns the reply.
func (r *remote) do(ctx context.Context, path string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(r.broken, func() { cancel(context.Cause(r.broken)) })
	defer stop()
	reply, st, err := r.transport.Call(ctx, path, body)
	switch {
	case r.broken.Err() != nil:
		return nil, fmt.Errorf("service at %s: %w", r.address, context.Cause(r.broken))
	case errors.Is(err, stream.ErrStandby):
		return nil, hinted{fmt.Errorf("service at %s: %w", r.address, err), leaderHint}
	case err != nil:
		return nil, fmt.Errorf("service at %s: %w", r.address, err)
	case st.Code == codes.Unimplemented:
		err := fmt.Errorf("service at %s: it is not one of serry's", r.address)
		return nil, hinted{err, "the services inside jax and TensorFlow do not answer these questions"}
	case !st.OK():
		return nil, wire.Serry.Error(st.Code, st.Message, st.Details)
	}
	return reply, nil
}

// brief is a context for a call that does not wait for anything.
func (r *remote) brief(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, r.timeout, fmt.Errorf("no answer within %v", r.timeout))
}

// call makes a call that does not wait, and waits for its answer.
func (r *remote) call(ctx context.Context, ev coord.Event) (coord.Result, error) {
	ctx, cancel := r.brief(ctx)
	defer cancel()
	return r.wait(ctx, ev)
}

// wait is call for one that may take as long as ctx lets it.
func (r *remote) wait(ctx context.Context, ev coord.Event) (coord.Result, error) {
	path, body, err := wire.Serry.Request(ev)
	if err != nil {
		return nil, err
	}
	reply, err := r.do(ctx, path, body)
	if err != nil {
		return nil, err
	}
	return wire.Serry.Result(ev, reply)
}

// status asks for a picture of the service.
func (r *remote) status(ctx context.Context, q wire.StatusQuery) (wire.Status, error) {
	ctx, cancel := r.brief(ctx)
	defer cancel()
	path, body, err := q.Request()
	if err != nil {
		return wire.Status{}, err
	}
	reply, err := r.do(ctx, path, body)
	if err != nil {
		return wire.Status{}, err
	}
	return wire.ReadStatus(reply)
}

// gather has the service ask the processes of the job, as long as they may take, and a bit for the way.
func (r *remote) gather(ctx context.Context, q wire.Inquiry) (wire.Gathered, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, q.Wait+r.timeout, fmt.Errorf("no answer within %v", q.Wait+r.timeout))
	defer cancel()
	reply, err := r.do(ctx, wire.GatherMethod, q.Bytes())
	if err != nil {
		return wire.Gathered{}, err
	}
	return wire.ReadGathered(reply)
}

func (r *remote) Close() { r.transport.Close() }

// result makes sure that the service answered with what was asked for.
func result[T coord.Result](r coord.Result, err error) (T, error) {
	t, ok := r.(T)
	if err == nil && !ok {
		err = fmt.Errorf("the service answered with %T", r)
	}
	return t, err
}

// Wait, Create, Put and List make a remote the key-value store of the job for package preempt.
func (r *remote) Wait(ctx context.Context, key string) ([]byte, error) {
	v, err := result[coord.Value](r.wait(ctx, coord.GetKeyValue{Key: key}))
	return v.Value, err
}

// Create stores a value under a key that must not exist.
func (r *remote) Create(ctx context.Context, key string, value []byte) error {
	_, err := r.call(ctx, coord.InsertKeyValue{Key: key, Value: value})
	return err
}

// Put stores a value.
func (r *remote) Put(ctx context.Context, key string, value []byte) error {
	_, err := r.call(ctx, coord.InsertKeyValue{Key: key, Value: value, Overwrite: true})
	return err
}

// List returns everything below a directory.
func (r *remote) List(ctx context.Context, dir string) ([]serry.Entry, error) {
	es, err := result[coord.Entries](r.call(ctx, coord.GetKeyValueDir{Dir: dir}))
	return es.Entries, err
}
