package back_test

import (
	"bytes"
	"io"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/serry-dev/serry/wire/back"
	"github.com/serry-dev/serry/wire/rpc"
)

// Whatever a server sends, the connection comes to an end and each call is told once.
func FuzzServer(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Add(reply(nil))
	f.Add(reply(func(fr *http2.Framer) { fr.WritePing(false, [8]byte{1}) }))
	f.Add(reply(func(fr *http2.Framer) { fr.WriteGoAway(1, http2.ErrCodeNo, nil) }))
	f.Add(reply(func(fr *http2.Framer) { fr.WriteRSTStream(3, http2.ErrCodeCancel) }))
	f.Add(reply(func(fr *http2.Framer) { fr.WriteWindowUpdate(0, 1<<31-1) }))
	f.Add(reply(func(fr *http2.Framer) { fr.WriteData(3, true, []byte{0, 0, 0, 0, 9}) }))
	f.Fuzz(func(t *testing.T, sent []byte) {
		ours, theirs := net.Pipe()
		c := back.New(ours, "fuzz", back.Options{Gzip: true})
		told := make([]int, 3)
		for i := range told {
			c.Start("/fuzz/call", []byte("request"), func([]byte, rpc.Status, error) { told[i]++ })
		}
		go io.Copy(io.Discard, theirs) // ends with the pipe
		theirs.Write(sent)             // may fail: the client has closed
		theirs.Close()
		<-c.Ended()
		c.Close()
		for i, n := range told {
			if n != 1 {
				t.Fatalf("call %d was told %d times; want 1", i, n)
			}
		}
	})
}

// reply is what a server says that answers the first call, after something else.
func reply(first func(*http2.Framer)) []byte {
	var sent, block bytes.Buffer
	fr, enc := http2.NewFramer(&sent, nil), hpack.NewEncoder(&block)
	fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1000})
	if first != nil {
		first(fr)
	}
	enc.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true})
	fr.WriteData(1, false, []byte{0, 0, 0, 0, 2, 'o', 'k'})
	block.Reset()
	enc.WriteField(hpack.HeaderField{Name: "grpc-status", Value: "0"})
	fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
	return sent.Bytes()
}
