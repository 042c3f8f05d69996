// Package setup builds what the functions that publish have in common: their
// pipeline, and how they verify signatures.
package setup

import (
	"net/http"

	"payhook.example/shared/bus"
	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/settings"
)

// Stores are where a function that publishes writes to and reads from.
type Stores struct {
	Ledger   ledger.Store
	Keys     keys.Store
	Bus      bus.Store
	Claims   bus.ClaimBucket
	Parking  objects.Creator
	Evidence objects.Creator // nil: none is stored
}

// Pipeline returns the pipeline that a function with these settings publishes with.
func Pipeline(stores Stores, s settings.Function) *intake.Pipeline {
	return intake.NewPipeline(
		ledger.New(stores.Ledger, ledger.Options{Window: s.DeduplicationWindow}),
		bus.New(stores.Bus, s.EventSource, s.MaxEntryBytes),
		bus.NewClaims(stores.Claims, s.ClaimBucket),
		stores.Parking,
		intake.Options{Grace: s.RedriveGrace, ClaimBytes: settings.ClaimCheckBytes, Evidence: stores.Evidence,
			ClaimRetention: max(s.ClaimRetention, 0)},
	)
}

// Signature returns what verifies the signatures of webhooks with these settings.
func Signature(store keys.Store, keyService *http.Client, s settings.Function) *intake.Signature {
	origin := keys.NewOrigin(keyService, s.KeyService, settings.KeyTimeout)
	return &intake.Signature{Scheme: s.Scheme, Window: s.Window, Revoked: s.Revoked,
		Keys: keys.New(origin, store, KeyOptions(s))}
}

// KeyOptions returns the options of the cache of keys.
func KeyOptions(s settings.Function) keys.Options {
	return keys.Options{Freshness: s.KeyFreshness, MaxAge: s.KeyMaxAge, MissBudget: s.KeyMissBudget}
}
