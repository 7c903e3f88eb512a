package front

import (
	"errors"

	"google.golang.org/grpc/codes"

	"github.com/serry-dev/serry/wire/internal/h2"
	"github.com/serry-dev/serry/wire/rpc"
)

// gunzip expands a message up to limit bytes. The caller recycles the result.
func gunzip(p []byte, limit int64) ([]byte, *rpc.Status) {
	out, err := h2.Gunzip(p, limit)
	switch {
	case errors.Is(err, h2.ErrTooLarge):
		return nil, tooLarge(limit)
	case err != nil:
		return nil, &rpc.Status{Code: codes.Internal, Message: "gzip: " + err.Error()}
	}
	return out, nil
}
