package intake

import (
	"net/http"

	"payhook.example/shared/bus"
	"payhook.example/shared/keys"
	"payhook.example/shared/ledger"
	"payhook.example/shared/objects"
	"payhook.example/shared/settings"
)

// Stores are where a function that publishes writes to and reads from.
type Stores struct {
	Ledger      ledger.Store
	Keys        keys.Store
	Bus         Bus
	LargeEvents bus.LargeEventBucket
	Parking     Parking
	Evidence    objects.Creator // nil: none is stored
}

// Bus is where events are published. Only redrive looks it up.
type Bus interface {
	bus.Store
	bus.Finder
}

// Parking is the bucket with parked deliveries and the decisions about them. Only redrive reads it.
type Parking interface {
	objects.Getter
	objects.Creator
}

// Pipeline returns the pipeline of a function with these settings.
func (s Stores) Pipeline(f settings.Config) *Pipeline {
	lockDays, _ := f.EvidenceLock()
	return NewPipeline(
		ledger.New(s.Ledger, ledger.Options{Window: f.DeduplicationWindow}),
		bus.New(s.Bus, settings.EventSource, f.MaxEntryBytes),
		bus.NewLargeEvents(s.LargeEvents, f.LargeEventBucket),
		s.Parking,
		Options{Grace: f.RedriveGrace, LargeEventBytes: settings.LargeEventBytes, Evidence: s.Evidence,
			EvidenceDays: lockDays, LargeEventRetention: f.LargeEventRetention},
	)
}

// Signature returns what verifies the signatures of webhooks with these settings.
func (s Stores) Signature(keyEndpoint *http.Client, f settings.Config) *Signature {
	endpoint := keys.NewEndpoint(keyEndpoint, f.KeyEndpoint, settings.KeyTimeout)
	return &Signature{Scheme: f.Scheme, Tolerance: f.TimestampTolerance, Revoked: f.Revoked,
		Keys: keys.New(endpoint, s.Keys, keys.Options{MaxAge: f.KeyMaxAge})}
}
