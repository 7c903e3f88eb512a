package back

import (
	"fmt"
	"math"
	"slices"

	"golang.org/x/net/http2"

	"github.com/serry-dev/serry/wire/internal/h2"
)

// control appends an acknowledgement. A server that asks for more of them than it reads is cut off.
func (c *Conn) control(appendTo func([]byte) []byte) error {
	m := &c.mu
	m.Lock()
	defer m.Unlock()
	if m.control++; m.control > maxControl {
		return fmt.Errorf("over %d acknowledgements wait for a server that does not read", maxControl)
	}
	m.Out = appendTo(m.Out)
	return nil
}

// settings obeys the server's settings.
func (c *Conn) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	c.mu.Lock()
	err := c.obey(f)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return c.control(h2.AppendSettingsAck)
}

func (c *Conn) obey(f *http2.SettingsFrame) error {
	peer := &c.mu.peer
	if !peer.known {
		peer.known, peer.streams = true, math.MaxUint32
		defer close(c.greeted)
	}
	if err := f.ForeachSetting(c.setting); err != nil {
		return err
	}
	c.admit()
	c.pump()
	return nil
}

func (c *Conn) setting(s http2.Setting) error {
	if err := s.Valid(); err != nil {
		return err
	}
	m := &c.mu
	switch s.ID {
	case http2.SettingHeaderTableSize:
		m.headers.limit(s.Val)
	case http2.SettingMaxFrameSize:
		m.peer.frame = int(s.Val)
	case http2.SettingMaxConcurrentStreams:
		m.peer.streams = s.Val
	case http2.SettingInitialWindowSize:
		change := int64(s.Val) - m.peer.window
		m.peer.window = int64(s.Val)
		for _, stream := range m.streams {
			if stream.window += change; stream.window > math.MaxInt32 {
				return http2.ConnectionError(http2.ErrCodeFlowControl)
			}
		}
	}
	return nil
}

// widen adds to the window of a stream or, numbered 0, of the connection.
func (c *Conn) widen(id uint32, bytes int64) error {
	m := &c.mu
	m.Lock()
	defer m.Unlock()
	window := &m.window
	if id != 0 {
		s := m.streams[id]
		if s == nil {
			return nil
		}
		window = &s.window
	}
	if *window += bytes; *window > math.MaxInt32 {
		return http2.ConnectionError(http2.ErrCodeFlowControl)
	}
	if len(m.blocked) > 0 {
		c.pump()
	}
	return nil
}

// above takes the calls beyond a stream number, in their order, and those that have no number yet.
func (c *Conn) above(last uint32) (sent, unsent []*stream) {
	m := &c.mu
	m.Lock()
	defer m.Unlock()
	for id, s := range m.streams {
		if id > last {
			sent = append(sent, s)
			delete(m.streams, id)
		}
	}
	slices.SortFunc(sent, func(a, b *stream) int { return int(a.id) - int(b.id) })
	m.blocked = slices.DeleteFunc(m.blocked, func(s *stream) bool { return s.id > last })
	for _, q := range m.queue {
		unsent = append(unsent, q.stream)
	}
	m.queue = nil
	return sent, unsent
}
