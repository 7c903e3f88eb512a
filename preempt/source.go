package preempt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/preempt/internal/pact"
)

// ErrClosed says that a notifier was closed before a notice came.
var ErrClosed = errors.New("notifier is closed")

// A SignalNotifier listens for signals from the moment it is made.
type SignalNotifier struct {
	signals chan os.Signal
	came    chan struct{} // closed with the first signal
	closed  chan struct{}
	once    sync.Once
	done    sync.WaitGroup
	notice  Notice // written before came is closed
}

// Signals listens for signals; none named means SIGTERM where the system has it. Other listeners of
// the program keep hearing them, but a signal that would end the program no longer does. It must be
// closed.
func Signals(which ...os.Signal) *SignalNotifier {
	if len(which) == 0 {
		which = defaultSignals
	}
	s := &SignalNotifier{signals: make(chan os.Signal, 1), came: make(chan struct{}), closed: make(chan struct{})}
	signal.Notify(s.signals, which...)
	s.done.Go(func() {
		select {
		case sig := <-s.signals:
			s.notice = Notice{Deadline: time.Now(), Source: "signal " + sig.String()}
			close(s.came)
		case <-s.closed:
		}
	})
	return s
}

// Wait implements [Notifier].
func (s *SignalNotifier) Wait(ctx context.Context) (Notice, error) {
	select {
	case <-s.came:
		return s.notice, nil
	default:
	}
	select {
	case <-s.came:
		return s.notice, nil
	case <-s.closed:
		return Notice{}, ErrClosed
	case <-ctx.Done():
		return Notice{}, context.Cause(ctx)
	}
}

// Close stops listening, and ends every Wait with [ErrClosed].
func (s *SignalNotifier) Close() {
	s.once.Do(func() {
		signal.Stop(s.signals)
		close(s.closed)
	})
	s.done.Wait()
}

// A NotifierFunc is a function that waits.
type NotifierFunc func(ctx context.Context) (Notice, error)

// Wait implements [Notifier].
func (f NotifierFunc) Wait(ctx context.Context) (Notice, error) { return f(ctx) }

// At gives notice at a time, for that time.
func At(t time.Time) Notifier {
	return NotifierFunc(func(ctx context.Context) (Notice, error) {
		return Notice{Deadline: t, Source: "date"}, pause.For(ctx, time.Until(t))
	})
}

// Any gives the first notice of several notifiers. It fails when all have.
func Any(from ...Notifier) Notifier {
	return NotifierFunc(func(ctx context.Context) (Notice, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		type word struct {
			notice Notice
			err    error
		}
		words := make(chan word, len(from))
		for _, n := range from {
			go func() {
				notice, err := n.Wait(ctx)
				words <- word{notice, err}
			}()
		}
		var errs []error
		for range from {
			w := <-words
			if w.err == nil {
				return w.notice, nil
			}
			errs = append(errs, w.err)
		}
		return Notice{}, errors.Join(errs...)
	})
}

// maxWordBytes bounds what is read of a source that says when.
const maxWordBytes = 64 << 10

// File gives notice when a file appears. It may hold the date; an empty one means now.
func File(path string, every time.Duration) Notifier {
	return poll(every, func(context.Context) (Notice, bool, error) {
		f, err := os.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			return Notice{}, false, nil
		} else if err != nil {
			return Notice{}, false, err
		}
		defer f.Close()
		text, err := io.ReadAll(io.LimitReader(f, maxWordBytes))
		if err != nil {
			return Notice{}, false, err
		}
		return said(string(text), "file "+path), true, nil
	})
}

// Command gives notice when a command ends well. What it prints may be the date.
func Command(name string, arg ...string) Notifier {
	return NotifierFunc(func(ctx context.Context) (Notice, error) {
		cmd := exec.CommandContext(ctx, name, arg...)
		cmd.WaitDelay = time.Second
		out, err := cmd.Output()
		if ctx.Err() != nil {
			return Notice{}, context.Cause(ctx)
		}
		if err != nil {
			return Notice{}, fmt.Errorf("preemption command %s: %w", name, err)
		}
		return said(string(out[:min(len(out), maxWordBytes)]), "command "+name), nil
	})
}

// maxAnswerTime bounds how long an endpoint may hold its answer. A connection that broke without a word
// would otherwise hide every later notice.
const maxAnswerTime = time.Minute

// HTTP asks a metadata endpoint. An answer of 404, an empty one, FALSE or NONE means that nothing
// is planned; anything else is a notice, with a date if it is one, or JSON with a field "time". An
// endpoint may hold its answer until something changes; after a minute it is asked again.
func HTTP(url string, header http.Header, every time.Duration) Notifier {
	return poll(every, func(ctx context.Context) (Notice, bool, error) {
		return ask(ctx, http.DefaultClient, url, header)
	})
}

// ask asks a metadata endpoint once.
func ask(ctx context.Context, client *http.Client, url string, header http.Header) (Notice, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, maxAnswerTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Notice{}, false, err
	}
	req.Header = header.Clone()
	resp, err := client.Do(req)
	if err != nil {
		return Notice{}, false, nil // a metadata server that is away says nothing
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxWordBytes))
	text := strings.TrimSpace(string(body))
	if err != nil || resp.StatusCode != http.StatusOK || text == "" ||
		strings.EqualFold(text, "FALSE") || strings.EqualFold(text, "NONE") {
		return Notice{}, false, nil
	}
	return said(text, "endpoint "+url), true, nil
}

// said makes a notice out of what a source says: a date, JSON with one, or just that it is time.
func said(text, source string) Notice {
	n := Notice{Deadline: time.Now(), Source: source}
	var fields struct {
		Time string `json:"time"`
	}
	if json.Unmarshal([]byte(text), &fields) == nil && fields.Time != "" {
		text = fields.Time
	}
	if t, err := pact.ParseTime(text); err == nil {
		n.Deadline = t
	}
	return n
}

// poll looks again and again until there is a notice or an error.
func poll(every time.Duration, look func(context.Context) (Notice, bool, error)) Notifier {
	if every <= 0 {
		every = time.Second
	}
	return NotifierFunc(func(ctx context.Context) (Notice, error) {
		for {
			n, found, err := look(ctx)
			if found || err != nil {
				return n, err
			}
			if err := pause.For(ctx, every); err != nil {
				return Notice{}, err
			}
		}
	})
}
