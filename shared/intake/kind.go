package intake

import (
	"payhook.example/shared/payment"
	"payhook.example/shared/proof"
)

// EventKind is the kind of what is parked in the ledger. The other kinds are the reasons of stored deliveries.
const EventKind = "event"

// KindOf returns the kind of what has a name; "" if it is not a name.
func KindOf(name string) string {
	if payment.IsUUID(name) {
		return EventKind
	}
	n, err := proof.ParseName(name)
	if err != nil {
		return ""
	}
	return string(n.Reason)
}
