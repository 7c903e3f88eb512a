package stream

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/serry-dev/serry/wire/conn"
)

// TestDamage changes a stream at every place and in every way that one flipped bit, a lost byte and a
// doubled byte can. What is taken of it is the beginning of what was sent, and never anything else.
func TestDamage(t *testing.T) {
	call := Call{Conn: 1, ID: 2, Method: "/a/b", Body: []byte("the value")}
	sent := samples()
	sent = appendWholeCall(sent, &call)
	sent = supportOf(Version{major, minor + 1}).appendOptional(sent)
	sent = appendFrame(sent, bare(frameSynced))
	want := new(tray)
	if err := cutAll(append([]byte(Preface), sent...), 1<<20, &frameReader{handler: want, limit: bothLimits}); err != nil {
		t.Fatal(err)
	}
	check := func(what string, at int, damaged []byte) {
		got := new(tray)
		err := cutAll(append([]byte(Preface), damaged...), 1<<20, &frameReader{handler: got, limit: bothLimits})
		if len(got.frames) > len(want.frames) || !slices.Equal(got.frames, want.frames[:len(got.frames)]) {
			t.Errorf("%s at byte %d: a frame was taken that was not sent", what, at)
		}
		if err == nil && len(got.frames) < len(want.frames) {
			t.Errorf("%s at byte %d: frames are missing, and the connection goes on", what, at)
		}
	}
	for i := range sent {
		for bit := range 8 {
			flipped := bytes.Clone(sent)
			flipped[i] ^= 1 << bit
			check("a flipped bit", i, flipped)
		}
		check("a lost byte", i, append(bytes.Clone(sent[:i]), sent[i+1:]...))
		check("a doubled byte", i, append(bytes.Clone(sent[:i+1]), sent[i:]...))
	}
}

// TestDamagedLength shows that a wrong length ends the connection at once: a reader that waited for as
// many bytes would wait for ever on a line with little to say.
func TestDamagedLength(t *testing.T) {
	for at := summed; at < headerBytes; at++ {
		b := appendCall([]byte(Preface), &Call{Method: "/a/b", Body: make([]byte, 100)}, bodyInfo{length: 100})
		b[len(Preface)+at] ^= 0x10
		c := &frameReader{handler: new(tray), limit: bothLimits}
		if _, err := c.cut(b[:len(Preface)+headerBytes]); !errors.Is(err, errDamaged) {
			t.Errorf("byte %d of a header is damaged: %v; want %v before more bytes come", at, err, errDamaged)
		}
	}
}

// TestDamagedBodies does the same to calls that come in many reads.
func TestDamagedBodies(t *testing.T) {
	call := Call{Conn: 1, ID: 2, Method: "/a/b", Body: bytes.Repeat([]byte("0123456789"), 20_000)}
	sent := appendWholeCall([]byte(Preface), &call)
	for _, at := range []int{len(Preface) + headerBytes, len(Preface) + headerBytes + 40, maxHead, len(sent) / 2, len(sent) - 1} {
		damaged := bytes.Clone(sent)
		damaged[at] ^= 1
		got := new(tray)
		err := cutAll(damaged, 4096, &frameReader{handler: got, limit: bothLimits, budget: conn.NewBudget(1 << 30)})
		if !errors.Is(err, errDamaged) || len(got.frames) > 0 {
			t.Errorf("byte %d of %d is damaged: %d frames, %v; want %v", at, len(sent), len(got.frames), err, errDamaged)
		}
	}
}
