package transfer

import (
	"context"

	"github.com/serry-dev/serry/transfer/internal/match"
	"github.com/serry-dev/serry/transfer/offer"
)

// OfferFrame is the payload of a frame by which a peer says that it has a send, whose data lie at a place.
func OfferFrame(number, key uint64, spec Spec, arena uint64, offset int64) []byte {
	shape, err := shapeOf(spec)
	if err != nil {
		panic(err)
	}
	return appendMessage(nil, match.Message{
		Kind: match.Offer, Number: match.Number(number), ID: match.ID{Key: key, Src: 1, Dst: 0}, Shape: shape, Ready: true,
		Class: uint8(Normal.link()), Place: match.Place{Arena: arena, Offset: offset},
	})
}

// RequestFrame is the payload of a frame by which a peer asks for a buffer of an offer.
func RequestFrame(key, id uint64) []byte {
	return appendRequest(nil, request{id: match.ID{Namespace: pullNamespace, Key: key, Src: 0, Dst: 2}, offer: offer.ID(id), class: uint8(Normal.link())})
}

// Testify is what an engine answers when a service asks.
func Testify(e *Engine, most int) []byte { return e.testify(context.Background(), "", most) }
