package main

// outside is the reason of mutants that use a number without its error.
const outside = "a text that is not a number is parsed as 0 or the largest number, and both are outside the limits"

// anyOrder is the reason of mutants that change the order of a list.
const anyOrder = "the order has no meaning"

// tooLong is the reason of mutants that read more of what is too long.
const tooLong = "any byte more shows that it is too long"

// memory is the reason of mutants that use more memory.
const memory = "it only saves memory"

// nothing is the reason of mutants that do for an empty list what changes nothing.
const nothing = "it only saves time: the list is empty"

// equivalent are the random mutants that no test can or should find, by name,
// each with the reason. They are not counted.
var equivalent = map[string]string{
	"shared/claimcheck/claimcheck.go Resolve: constant: 1": tooLong,

	"shared/intake/record.go distinct: removed: events = make([]event, 0, len(delivery.Events))":  memory,
	"shared/intake/record.go record: removed: rec.entries = make([]ledger.Entry, 0, len(events))": memory,

	"shared/intake/redrive.go pauseAfter: constant: 10": "a pause of 2,048 minutes is limited to an hour as well",

	"shared/intake/redrive.go publishDue: swapped arguments: a.EventID, b.EventID": anyOrder,

	"shared/payment/payment.go Rat: constant: 0": "no number starts with its exponent",

	"shared/keys/certificate.go due: never true: now.Sub(at) >= certificateEvery": memory,
	"shared/keys/certificate.go due: >= is >: now.Sub(at) >= certificateEvery":    memory,
	"shared/keys/certificate.go due: removed: delete(c.written, other)":           memory,

	"shared/keys/jwk.go package level: constant: 2048":                "the division by 8 drops it",
	"shared/keys/jwk.go package level: constant: 4096":                "the division by 8 drops it",
	"shared/keys/jwk.go ParseJWK: swapped arguments: err, errTooLong": "canonical returns errTooLong itself",
	"shared/keys/jwk.go exponent: constant: 4":                        "a number of five bytes is too large as well",
	"shared/keys/origin.go Fetch: constant: 1":                        tooLong,

	"shared/ledger/batch.go ofNoSize: constant: 0": "25 elements of one byte are no batch of a megabyte",

	"shared/ledger/record.go package level: constant: 1": "the numbers of the outcomes have no meaning, except 0",

	"shared/parking/parking.go Decision: swapped arguments: err, ErrNotParked": "get returns ErrNotParked itself",

	"shared/payment/decode.go peek: swapped arguments: jsontext.AllowDuplicateNames(true), ...": anyOrder,
	`shared/payment/decode.go unquote: never true: bytes.IndexByte(text, '\\') < 0`:             memory,
	"functions/webhook/request.go plain: removed: return text":                                  memory,
	"functions/webhook/request.go plain: never true: " +
		`bytes.IndexByte(text, '\\') < 0 && utf8.Valid(text)`: memory,
	"shared/intake/record.go write: always true: len(large) > 0":        nothing,
	"shared/ledger/record.go lookUp: never true: len(ids) == 0":         nothing,
	"shared/payment/decode.go free: removed: w.buffer = bytes.Buffer{}": memory,
	"shared/payment/decode.go free: removed: w.dec.Reset(&w.buffer)":    memory,
	"shared/payment/decode.go free: removed: walkers.Put(w)":            memory,

	"shared/token/endpoint.go newTransport: constant: 32": "one more idle connection changes no answer",
	"shared/token/endpoint.go newTransport: constant: 10": "a second more to connect changes no answer",

	"shared/token/reader.go bearer: removed: return held, err": "the second recall returns the same, after a wait",

	"shared/settings/settings.go duration: right side alone: err != nil || d < least":                 outside,
	"shared/settings/settings.go entryBytes: right side alone: err != nil || n < minEntryBytes":       outside,
	"shared/settings/settings.go integer: right side alone: err != nil || n < least":                  outside,
	"shared/settings/settings.go oneOf: right side alone: err != nil || !slices.Contains(allowed, n)": outside,
	"shared/settings/settings.go days: right side alone: err != nil || d%(24*time.Hour) != 0":         outside,
}
