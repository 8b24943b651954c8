package api

import (
	"errors"
	"io"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"google.golang.org/grpc"
)

// chunk is the size of one message of a stream of bytes.
const chunk = 32 << 10

// Send streams everything that r has.
func Send(srv grpc.ServerStreamingServer[common.Data], r io.Reader) error {
	buf := make([]byte, chunk)

	for {
		n, err := r.Read(buf)
		if n > 0 {
			if sendErr := srv.Send(&common.Data{Bytes: slices.Clone(buf[:n])}); sendErr != nil {
				return sendErr
			}
		}

		if errors.Is(err, io.EOF) {
			return nil
		}

		if err != nil {
			return err
		}
	}
}
