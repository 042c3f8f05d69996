package ledger_test

import (
	"context"
	"time"

	"payhook.example/shared/ledger"
)

// one makes calls of a ledger for one entry.
type one struct{ *ledger.Ledger }

func (o one) Record(ctx context.Context, e ledger.Item, holder ledger.Holder, due time.Time) (ledger.Outcome, error) {
	r := o.Ledger.Record(ctx, []ledger.Item{e}, holder, due)[0]
	return r.Outcome, r.Err
}

func (o one) MarkPublished(ctx context.Context, e ledger.Item) error {
	return o.Ledger.MarkPublished(ctx, []ledger.Item{e})[0]
}

func (o one) Lease(ctx context.Context, p ledger.Item, holder ledger.Holder,
	until time.Time) (ledger.Item, bool, error) {
	r := o.Ledger.Lease(ctx, []ledger.Item{p}, holder, until)[0]
	return r.Item, r.Held, r.Err
}
