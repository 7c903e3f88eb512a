package front

import (
	"fmt"

	"golang.org/x/net/http2"
)

// A ConnError is a breach of HTTP/2, or of a limit, that ended a connection.
type ConnError struct {
	Code   http2.ErrCode
	Reason string
}

func (e *ConnError) Error() string { return fmt.Sprintf("%s: %v", e.Reason, e.Code) }

func protocolError(reason string) error { return &ConnError{http2.ErrCodeProtocol, reason} }
