package cosi

import (
	"crypto/rand"
	"slices"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"google.golang.org/grpc"
)

// Bookmarks makes the bookmarks of a node's watches those of one boot: a watch that was begun in another one cannot go
// on. All boots of the lab share a process, and with it what the library tells them apart by.
func Bookmarks(server v1alpha1.StateServer) v1alpha1.StateServer {
	b := &bookmarks{StateServer: server}
	_, _ = rand.Read(b.mask[:]) // crypto/rand.Read never fails

	return b
}

type bookmarks struct {
	v1alpha1.StateServer

	mask [8]byte
}

// Watch implements the State service.
func (b *bookmarks) Watch(req *v1alpha1.WatchRequest, srv grpc.ServerStreamingServer[v1alpha1.WatchResponse]) error {
	if start := req.GetOptions().GetStartFromBookmark(); start != nil {
		req.Options.StartFromBookmark = b.masked(start)
	}

	return b.StateServer.Watch(req, &bookmarkStream{ServerStreamingServer: srv, bookmarks: b})
}

// masked is a bookmark of the library as one of this boot, and the other way round. The library shares its own.
func (b *bookmarks) masked(bookmark []byte) []byte {
	out := slices.Clone(bookmark)
	for i := range min(len(out), len(b.mask)) {
		out[i] ^= b.mask[i]
	}

	return out
}

type bookmarkStream struct {
	grpc.ServerStreamingServer[v1alpha1.WatchResponse]

	bookmarks *bookmarks
}

// Send implements the stream.
func (s *bookmarkStream) Send(resp *v1alpha1.WatchResponse) error {
	for _, e := range resp.GetEvent() {
		if e.GetBookmark() != nil {
			e.Bookmark = s.bookmarks.masked(e.GetBookmark())
		}
	}

	return s.ServerStreamingServer.Send(resp)
}
