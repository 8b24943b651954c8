package talosetcdrestore

import (
	"context"
	"io"

	"github.com/talos-operator/talos-operator/internal/backup"
	"github.com/talos-operator/talos-operator/internal/backup/raise"
	"github.com/talos-operator/talos-operator/internal/backup/store"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// sendRaised sends the snapshot with a higher revision than that of the backup.
func (r *Reconciler) sendRaised(
	ctx context.Context, s *scope, node *talos.Node, st store.Store, read backup.Read,
) error {
	return raise.Snapshot(ctx, raise.Options{
		Dir: r.Scratch, Exe: r.Exe, Size: s.restore.Status.Backup.Size, Copied: s.restore.Status.Backup.Copied,
		By: s.restore.Spec.RevisionBump,
	}, func(w io.Writer) error {
		return readChosen(ctx, s, st, read, w)
	}, func(raised io.Reader) error {
		return node.EtcdRecover(ctx, talos.VerifySnapshot(raised))
	})
}
