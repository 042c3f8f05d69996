// Package explain finds out why the signature of a webhook does not verify.
//
// It guarantees that settings which it proposes were tried: [Explain] reports the
// verdict [Settings] only if the request passes, with these settings, the checks that
// the webhook function makes ([intake.Signature.Check]). It proposes no setting that weakens
// the protection: a longer timestampTolerance, another exponent, or a fixed key id that the
// caller has not given. The work is limited by
// [Options], and a report says what was not tried. A [Report] contains places, key ids
// and timestamps of a request, and neither its payload nor its signature.
//
// The interface does not say where timestamp and key id are carried (section 4.3).
// Explain looks for them and for the signature in all headers and query parameters, in
// the path and in the JSON of the payload. It fetches the keys that UUIDs can name.
//
// It does not verify every combination with every key. A signature of PKCS #1 v1.5
// contains the digest of its message, which everybody who has the public key can read
// (RFC 8017, sections 5.2.2 and 9.2). So one RSA operation shows whether a key made a
// signature. After that, each form of the message costs a SHA-256. If a key of the
// service made the signature and no form has its digest, the message that was signed is
// not the one that was received.
package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"payhook.example/shared/intake"
	"payhook.example/shared/keys"
	"payhook.example/shared/rfc9562"
	"payhook.example/shared/settings"
	"payhook.example/shared/signature"
)

// Request is a webhook as it was received.
type Request struct {
	Method   string
	Path     string
	RawQuery string            // without the question mark
	Headers  map[string]string // names of any case; repeated headers joined by commas
	Payload  []byte            // the body, byte for byte
	// Missing is the size of a payload that is not available; 0 if Payload is complete.
	Missing int
	// ReceivedAt is the time at which the request was received. With the zero time,
	// the age of its timestamp is not checked.
	ReceivedAt time.Time
}

// Fetcher fetches keys. [keys.Origin] implements it.
type Fetcher interface {
	Fetch(ctx context.Context, id string) ([]byte, error)
}

// Options are the options of [Explain]. The comment of each field ends with its
// default, which replaces the zero value.
type Options struct {
	KeyIDs    []string // further key ids to try, for a service that does not send them; none
	MaxKeys   int      // requests to the key service; 16
	MaxHashed int      // bytes of messages that are hashed; 512 MiB
}

// Verdict is the result of an explanation.
type Verdict string

// The verdicts.
const (
	Authentic   Verdict = "authentic"    // the request verifies with the settings as they are
	Settings    Verdict = "settings"     // it verifies with other settings
	Age         Verdict = "age"          // the signature verifies; the timestamp is too old or in the future
	Unsupported Verdict = "unsupported"  // it verifies only in a way for which there is no setting
	Changed     Verdict = "changed"      // a key of the service signed a message with another payload
	OtherKey    Verdict = "other-key"    // no key that was found made the signature
	NoKey       Verdict = "no-key"       // no key was found
	NoSignature Verdict = "no-signature" // the request contains no signature of section 5.4
)

// Change is a setting that must be changed.
type Change struct {
	Setting string `json:"setting"` // the key in cdk.json
	Value   string `json:"value"`
	Was     string `json:"was"`
}

// Report is an explanation.
type Report struct {
	Verdict Verdict `json:"verdict"`
	// Outcome is what the webhook function would log for this request with the settings
	// as they are; "accepted" if its signature verifies.
	Outcome string `json:"outcome"`
	// Step is the check that fails, in words; "" if none fails.
	Step string `json:"step,omitempty"`
	// Settings are the changes with which the request verifies. With the verdicts Age,
	// Unsupported and Changed, they are necessary and not sufficient.
	Settings []Change `json:"settings,omitempty"`
	// Differences are how the signed message or its proof differs from what Payhook
	// accepts.
	Differences []string `json:"differences,omitempty"`
	Advice      []string `json:"advice,omitempty"`   // what to do
	Evidence    []string `json:"evidence,omitempty"` // signs that the request was changed on the way

	Signatures []SignatureFound `json:"signatures,omitempty"`
	Timestamps []TimestampFound `json:"timestamps,omitempty"`
	Keys       []KeyFound       `json:"keys,omitempty"`

	NotTried []string `json:"notTried,omitempty"` // what the limits excluded
}

// SignatureFound is a text that can be a signature.
type SignatureFound struct {
	Place    string `json:"place"`
	Encoding string `json:"encoding"`
	Bytes    int    `json:"bytes"`
	MadeBy   string `json:"madeBy,omitempty"` // the id of the key that made it
}

// TimestampFound is a text that can be the signed timestamp.
type TimestampFound struct {
	Place  string    `json:"place"`
	Text   string    `json:"text"`
	Format string    `json:"format"`
	Time   time.Time `json:"time"`
}

// KeyFound is a UUID that can be the key id.
type KeyFound struct {
	ID    string `json:"keyId"`
	Place string `json:"place"`
	State string `json:"state"` // usable, refused, unknown, unavailable or not-tried
	Cause string `json:"cause,omitempty"`
}

// The states of a key id.
const (
	usable      = "usable"
	rejected    = "refused"
	unknown     = "unknown"
	unavailable = "unavailable"
	notTried    = "not-tried"
)

// Explain explains why the signature of a request does not verify. values are the texts
// of [settings.ProofSettings] by their keys; one that is absent has its default. fetch
// is the key service at their baseUrl.
//
// The error wraps ctx's, or reports invalid settings.
func Explain(ctx context.Context, r Request, values map[string]string, fetch Fetcher, opts Options) (*Report, error) {
	conf, err := parse(values)
	if err != nil {
		return nil, err
	}
	e := &explainer{
		request: r, values: values, conf: conf,
		keys: &keyRing{fetch: fetch, exponents: conf.KeyExponents, limit: cmp.Or(opts.MaxKeys, 16)},
		work: work{limit: cmp.Or(opts.MaxHashed, 512<<20)},
	}
	e.run(ctx, opts)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("explain: %w", err)
	}
	return &e.report, nil
}

func parse(values map[string]string) (settings.Webhook, error) {
	return settings.ParseProof(func(key string) (string, bool) {
		text, ok := values[key]
		return text, ok
	})
}

// explainer is one explanation.
type explainer struct {
	request Request
	values  map[string]string
	conf    settings.Webhook
	keys    *keyRing
	work    work
	report  Report

	signatures []signatureCandidate
	timestamps []timestampCandidate
	keyIDs     []keyCandidate
}

func (e *explainer) run(ctx context.Context, opts Options) {
	r := &e.report
	all := e.collect()
	e.signatures = signatureCandidates(all, e.conf.Scheme.SignatureHeader)
	e.timestamps = timestampCandidates(all, e.conf.Scheme.Timestamp.String())
	e.keyIDs = keyCandidates(all, e.conf.Scheme.KeyID.String(), opts.KeyIDs)

	// First as the function does it, so that the step is the one that it would log.
	err := e.check(ctx, e.conf, e.request.Payload)
	r.Outcome = string(intake.OutcomeOf(err))
	if err != nil {
		r.Step = stepOf(err, e.conf)
	}
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		r.Verdict = Authentic
		e.adviseAuthentic()
		e.describe(ctx)
		return
	}
	e.describe(ctx)
	if e.request.Missing > 0 {
		r.Verdict = NoSignature
		if len(e.signatures) > 0 {
			r.Verdict = Changed
		}
		e.say("The body is not available: it had %d bytes, more than is captured. Record this request on the way "+
			"(a dump of the body, byte for byte) and pass the file.", e.request.Missing)
		return
	}
	switch {
	case len(e.signatures) == 0:
		r.Verdict = NoSignature
		e.adviseNoSignature(all)
		return
	case e.keys.none():
		r.Verdict = NoKey
		e.adviseNoKey()
		return
	}
	e.judge(ctx)
	r.Evidence = evidence(e.request)
	if r.Verdict == Settings || r.Verdict == Age || r.Verdict == Unsupported {
		r.Evidence = nil
	}
}

// check makes the checks of the webhook function.
func (e *explainer) check(ctx context.Context, conf settings.Webhook, payload []byte) error {
	switch {
	case e.request.Method != "" && e.request.Method != conf.HTTPMethod:
		return intake.ErrMethod
	case e.request.Missing > conf.MaxPayloadBytes, len(payload) > conf.MaxPayloadBytes:
		return intake.ErrPayloadTooLarge
	case len(payload) == 0 && e.request.Missing == 0:
		return intake.ErrPayloadEmpty
	}
	now := e.request.ReceivedAt
	if now.IsZero() {
		// The age is unknown, so the timestamp is checked as of its own time.
		if proof, err := conf.Scheme.Extract(e.request.Headers, e.request.RawQuery); err == nil {
			now, _ = signature.TimeOf(proof.Timestamp)
		}
	}
	s := intake.Signature{Scheme: conf.Scheme, Window: conf.Window, Keys: withExponents{e.keys, conf.KeyExponents}}
	return s.Check(ctx, intake.Delivery{Payload: payload, Headers: e.request.Headers, RawQuery: e.request.RawQuery,
		SourceIP: netip.Addr{}}, now)
}

// maxNotTried is how many UUIDs that were not looked up a report lists.
const maxNotTried = 8

// describe fetches the keys and lists what was found.
func (e *explainer) describe(ctx context.Context) {
	if len(e.signatures) > 0 {
		for _, c := range e.keyIDs {
			e.keys.get(ctx, c.id)
		}
	}
	skipped := map[string]bool{}
	for _, c := range e.keyIDs {
		k := KeyFound{ID: c.id, Place: c.place, State: notTried}
		if got, ok := e.keys.results[strings.ToLower(c.id)]; ok {
			k.State, k.Cause = got.state, got.cause
		} else if skipped[strings.ToLower(c.id)] = true; len(skipped) > maxNotTried {
			continue
		}
		e.report.Keys = append(e.report.Keys, k)
	}
	if len(skipped) > 0 && len(e.signatures) > 0 {
		e.skipped("%d UUIDs were not looked up as key ids: at most %d are, and none after two lookups in a row failed.",
			len(skipped), e.keys.limit)
	}
	for _, c := range e.timestamps {
		e.report.Timestamps = append(e.report.Timestamps, TimestampFound{c.place, c.text, c.format, c.at})
	}
	for i := range e.signatures {
		s := &e.signatures[i]
		found := SignatureFound{Place: s.place, Encoding: s.encoding, Bytes: len(s.bytes)}
		for _, k := range e.keys.found() {
			if o, ok := open(k.key, s.bytes); ok {
				s.opened = append(s.opened, openedBy{k, o})
				found.MadeBy = k.id
			}
		}
		e.report.Signatures = append(e.report.Signatures, found)
	}
}

// judge finds the form of the message whose signature is in the request.
func (e *explainer) judge(ctx context.Context) {
	var made []openedSignature
	for _, s := range e.signatures {
		for _, o := range s.opened {
			made = append(made, openedSignature{s, o})
		}
	}
	for _, m := range made {
		if match, ok := e.search(ctx, m); ok {
			e.propose(ctx, match)
			return
		}
	}
	e.work.report(e)
	switch {
	case e.judgeOther(): // JWS or PSS
	case len(made) > 0:
		e.report.Verdict = Changed
		e.adviseChanged(made[0])
	default:
		e.report.Verdict = OtherKey
		e.adviseOtherKey()
	}
}

// propose reports how the request that matches verifies.
func (e *explainer) propose(ctx context.Context, m match) {
	r := &e.report
	values := map[string]string{}
	for _, s := range settings.ProofSettings() {
		values[s.Key] = cmp.Or(e.values[s.Key], s.Default)
	}
	set := func(s *settings.Setting, value string) {
		if values[s.Key] == value {
			return
		}
		r.Settings = append(r.Settings, Change{s.Key, value, values[s.Key]})
		values[s.Key] = value
	}
	e.proposeSignature(m, set)
	e.proposeTimestamp(m, set)
	e.proposeKey(m, set)
	if e.request.Method != "" {
		set(settings.HTTPMethod, e.request.Method)
	}
	if n := len(e.request.Payload); n > e.conf.MaxPayloadBytes {
		set(settings.MaxPayloadBytes, fmt.Sprint(n))
	}
	r.Differences = append(r.Differences, m.form.differences()...)
	if m.made.opened.hash.String() != "SHA-256" {
		r.Differences = append(r.Differences, fmt.Sprintf("The signature uses %s. Section 5.4 of the interface says "+
			"SHA-256.", m.made.opened.hash))
	}
	unsupported := len(r.Differences) > 0
	conf, err := parse(values)
	if err == nil {
		err = e.check(ctx, conf, m.payload.bytes)
	}
	late := errors.Is(err, signature.ErrOutsideWindow)
	switch {
	case err != nil && !late && !unsupported:
		r.Differences = append(r.Differences, "With these settings, it would still be rejected: "+
			stepOf(err, conf))
		r.Verdict = Unsupported
	case unsupported:
		r.Verdict = Unsupported
	case m.payload.name != "":
		r.Verdict = Changed
	case late:
		r.Verdict = Age
	default:
		r.Verdict = Settings
	}
	if m.payload.name != "" {
		r.Differences = append(r.Differences, "The signature is one of "+m.payload.name+", not of the bytes that "+
			"were received.")
	}
	e.adviseMatch(m)
}

func (e *explainer) proposeSignature(m match, set func(*settings.Setting, string)) {
	s := m.made.signature
	name, header := strings.CutPrefix(s.carrier, "header:")
	switch {
	case !header:
		e.differs("The signature is carried in the %s. Payhook reads it from a header of its own.", s.place)
	case !strings.EqualFold(name, e.conf.Scheme.SignatureHeader):
		set(settings.SignatureHeader, name)
	}
	if s.encoding != base64URL {
		e.differs("The signature is encoded as %s. Section 5.4 of the interface says base64url.", s.encoding)
	}
}

func (e *explainer) proposeTimestamp(m match, set func(*settings.Setting, string)) {
	if !strings.Contains(m.form.order, "T") {
		return
	}
	places := slices.DeleteFunc(slices.Clone(e.timestamps),
		func(c timestampCandidate) bool { return c.text != m.timestamp.text })
	c := best(places, func(c timestampCandidate) value { return c.value }, e.conf.Scheme.Timestamp.String())
	if c.carrier == "" {
		e.differs("The timestamp is carried in the %s. Payhook reads it from a header or query parameter of its own.",
			c.place)
	} else if !sameCarrier(c.carrier, e.conf.Scheme.Timestamp.String()) {
		set(settings.TimestampCarrier, c.carrier)
	}
	if m.timestampText != c.text {
		e.differs("The signed timestamp is written as %s, and the request carries it as %s.",
			quoted(m.timestampText), quoted(c.text))
		return
	}
	w := e.conf.Window
	if w == nil {
		return
	}
	at, known := signature.TimeOf(c.text)
	if !known {
		e.differs("Payhook cannot read the timestamp's format (%s).", c.format)
		return
	}
	if errors.Is(w.Check(c.text, at), signature.ErrMalformed) {
		set(settings.TimestampFormat, "auto")
		if (&signature.Window{Tolerance: w.Tolerance}).Check(c.text, at) != nil { // auto reads it as another time
			e.differs("The timestamp is not in the format of timestampFormat.")
		}
	}
	if e.request.ReceivedAt.IsZero() {
		return
	}
	if age := e.request.ReceivedAt.Sub(at); age.Abs() > w.Tolerance {
		e.adviseAge(age, w.Tolerance)
	}
}

func (e *explainer) proposeKey(m match, set func(*settings.Setting, string)) {
	k := m.made.opened.key
	if k.state == rejected {
		e.differs("The key %s must not be used: %s.", k.id, k.cause)
		e.say("Ask the service's operator for a key of section 2.6 of the interface: RSA with 2048 to 4096 bits, " +
			"RS256, for signatures.")
	}
	if !strings.Contains(m.form.order, "K") {
		return
	}
	places := slices.DeleteFunc(slices.Clone(e.keyIDs), func(c keyCandidate) bool { return c.text != m.keyID.text })
	c := best(places, func(c keyCandidate) value { return c.value }, e.conf.Scheme.KeyID.String())
	switch {
	case m.keyIDText != c.text:
		e.differs("The signed key id is written as %s, and the request carries it as %s.", quoted(m.keyIDText),
			quoted(c.text))
	case c.carrier != "":
		if !sameCarrier(c.carrier, e.conf.Scheme.KeyID.String()) {
			set(settings.KeyIDCarrier, c.carrier)
		}
	case c.place == fromOptions:
		set(settings.KeyIDCarrier, "static:"+c.id)
		e.say("keyIdCarrier is a fixed id: every webhook is rejected as soon as the service signs with another key.")
	default:
		e.differs("The key id is carried in the %s as %s. Payhook reads a UUID from a header or query parameter of "+
			"its own.", c.place, quoted(c.text))
	}
	if m.form.keyOfAnother {
		e.differs("The signed key id is not the id of the key that made the signature, %s.", k.id)
	}
}

// best returns the candidate whose carrier a setting can name, and preferably the one
// that is set already.
func best[T any](candidates []T, of func(T) value, configured string) T {
	rank := func(c T) int {
		switch v := of(c); {
		case sameCarrier(v.carrier, configured):
			return 0
		case strings.HasPrefix(v.carrier, "header:"):
			return 1
		case v.carrier != "":
			return 2
		}
		return 3
	}
	return slices.MinFunc(candidates, func(a, b T) int { return rank(a) - rank(b) })
}

func sameCarrier(a, b string) bool {
	return a == b || strings.HasPrefix(a, "header:") && strings.EqualFold(a, b)
}

func (e *explainer) differs(format string, args ...any) {
	e.report.Differences = append(e.report.Differences, fmt.Sprintf(format, args...))
}

func (e *explainer) say(format string, args ...any) {
	e.report.Advice = append(e.report.Advice, fmt.Sprintf(format, args...))
}

func (e *explainer) skipped(format string, args ...any) {
	e.report.NotTried = append(e.report.NotTried, fmt.Sprintf(format, args...))
}

// withExponents checks keys with other allowed exponents.
type withExponents struct {
	ring      *keyRing
	exponents []int
}

// Lookup implements [intake.Keys].
func (w withExponents) Lookup(ctx context.Context, id string, _ netip.Addr) (keys.Found, error) {
	if !rfc9562.Valid(id) {
		return keys.Found{}, keys.ErrMalformedID
	}
	text, err := w.ring.text(ctx, id)
	if err != nil {
		return keys.Found{}, err
	}
	key, err := parseJWK(text, id, w.exponents)
	return keys.Found{Key: key}, err
}

// Refetch implements [intake.Keys]. There is no cache, so there is no newer key.
func (withExponents) Refetch(context.Context, string, keys.Found, netip.Addr) (keys.Found, error) {
	return keys.Found{}, nil
}

// SourceRecorded implements [intake.Keys]. Nothing is recorded.
func (withExponents) SourceRecorded(netip.Addr) bool { return true }

// RecordSource implements [intake.Keys]. It does nothing.
func (withExponents) RecordSource(context.Context, netip.Addr) {}
