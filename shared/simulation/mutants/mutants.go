package main

// mutant is a bug that somebody could make.
type mutant struct {
	name     string
	file     string
	old, new string   // old stands in the file exactly once
	by       []string // the packages whose tests are run, in this order
}

const (
	histories = "./shared/simulation"

	pipelineFile     = "shared/intake/pipeline.go"
	receiveFile      = "shared/intake/receive.go"
	outcomeFile      = "shared/intake/outcome.go"
	recordFile       = "shared/intake/record.go"
	ledgerRecordFile = "shared/ledger/record.go"
	publishFile      = "shared/intake/publish.go"
	parkFile         = "shared/intake/park.go"
	replayFile       = "shared/intake/replay.go"
	redriveFile      = "shared/intake/redrive.go"
	ledgerFile       = "shared/ledger/ledger.go"
	itemFile         = "shared/ledger/item.go"
	markFile         = "shared/ledger/mark.go"
	pendingFile      = "shared/ledger/pending.go"
	knownFile        = "shared/ledger/known.go"
	busFile          = "shared/bus/bus.go"
	checkFile        = "shared/bus/check.go"
	keysFile         = "shared/keys/keys.go"
	keysTableFile    = "shared/keys/table.go"
	budgetFile       = "shared/keys/budget.go"
	sourcesFile      = "shared/keys/sources.go"
	jwkFile          = "shared/keys/jwk.go"
	parkingFile      = "shared/parking/parking.go"
	claimFile        = "shared/claimcheck/claimcheck.go"
	decodeFile       = "shared/payment/decode.go"
	signatureFile    = "shared/signature/signature.go"
	carrierFile      = "shared/signature/carrier.go"
	windowFile       = "shared/signature/window.go"
	handlerFile      = "functions/webhook/handler.go"
	requestFile      = "functions/webhook/request.go"
	rfc3339File      = "shared/rfc3339/rfc3339.go"
	settingsFile     = "shared/settings/settings.go"
	tablesFile       = "shared/settings/settings.go"
	conflictFile     = "shared/settings/contradictions.go"
	refresherFile    = "shared/token/refresher.go"
	tokenMainFile    = "functions/token/main.go"

	clientCertFile     = "shared/clientcert/clientcert.go"
	certificateFile    = "functions/webhook/certificate.go"
	webhookMainFile    = "functions/webhook/main.go"
	lastCertFile       = "shared/keys/certificate.go"
	authenticationFile = "shared/settings/authentication.go"
	redriveHandlerFile = "functions/redrive/handler.go"
	replayCommandFile  = "infra/payhook/operate/replay.go"
	parkedCommandFile  = "infra/payhook/operate/parked.go"
	creationFile       = "infra/payhook/creation/creation.go"
	tailFile           = "infra/payhook/logs/tail.go"
	programFile        = "infra/payhook/cli/cli.go"
	targetFile         = "infra/payhook/target/target.go"
	sendFile           = "infra/payhook/send/send.go"
	explainFile        = "shared/explain/explain.go"
	explainKeyFile     = "shared/explain/key.go"
	explainMessageFile = "shared/explain/message.go"
	explainRequestFile = "infra/payhook/explain/request.go"
)

// What goes wrong between a delivery and the bus must be found by the histories
// alone; what decides whether a delivery is authentic, by the tests of its
// package.
var (
	inHistories = []string{histories}
	inLedger    = []string{"./shared/ledger"}
	inBus       = []string{"./shared/bus"}
	inRFC3339   = []string{"./shared/rfc3339"}
	inSettings  = []string{"./shared/settings"}
	inIntake    = []string{"./shared/intake"}
	inKeys      = []string{"./shared/keys"}
	inSignature = []string{"./shared/signature"}
	inPayment   = []string{"./shared/payment"}
	inWebhook   = []string{"./functions/webhook"}
	inToken     = []string{"./shared/token"}
	inTokenMain = []string{"./functions/token"}
	inParking   = []string{"./shared/parking"}
	inRedrive   = []string{"./functions/redrive"}
	inLogs      = []string{"./infra/payhook/logs"}
	inOperate   = []string{"./infra/payhook/operate"}
	inCreation  = []string{"./infra/payhook/creation"}
	inProgram   = []string{"./infra/payhook/cli"}
	inTarget    = []string{"./infra/payhook/target"}
	inSend      = []string{"./infra/payhook/send"}
	inExplain   = []string{"./shared/explain"}

	inClientCert = []string{"./shared/clientcert"}

	inClaimcheck  = []string{"./shared/claimcheck"}
	inPermissions = []string{"./infra -run TestEachFunctionHas"}
)

var mutants = []mutant{
	// A first deployment that failed.
	{"a stack that was created loses its protection from deletion", creationFile,
		`!slices.Contains(neverCreated, s.StackStatus)`, `slices.Contains(neverCreated, "")`, inCreation},
	{"a stack whose rollback failed as well stays protected", creationFile,
		`types.StackStatusRollbackComplete, types.StackStatusRollbackFailed}`,
		`types.StackStatusRollbackComplete}`, inCreation},
	{"a stack that is created meanwhile loses its protection", creationFile,
		`		StackName: s.StackId, EnableTerminationProtection: aws.Bool(false),`,
		`		StackName: &stack, EnableTerminationProtection: aws.Bool(false),`, inCreation},

	// An explanation.
	{"an explanation looks up every UUID of a request", explainKeyFile,
		`len(k.order) >= k.limit || `, ``, inExplain},
	{"an explanation asks a key service that does not answer again and again", explainKeyFile,
		` || k.failed >= 2`, ``, inExplain},
	{"an explanation hashes without a limit", explainMessageFile,
		`w.exceeded || w.hashed > w.limit`, `w.exceeded`, inExplain},
	{"an explanation takes the payload as signed if another form of it was", explainFile,
		`	case m.payload.name != "":
		r.Verdict = Changed
`, ``, inExplain},
	{"an explanation accepts a key that must not be used", explainFile,
		`if k.state == refused && k.exponents == nil {`, `if k.state == "" {`, inExplain},
	{"the last line feed of a file counts as one of the payload", explainRequestFile,
		`n < len(body) &&`, `n < 0 &&`, []string{"./infra/payhook/explain"}},

	// The program.
	{"a command asks where nobody is at a terminal", programFile,
		`	if !p.Terminal {`, `	if !p.Terminal && len(question) > 1000 {`, inProgram},
	{"an answer other than yes counts as yes", programFile,
		`if text == "y" || text == "yes" {`, `if text != "n" {`, []string{"./infra/payhook/operate"}},
	{"a denied request ends with the status of wrong usage", programFile,
		`		status = StatusUnreachable`, `		status = StatusUsage`, inProgram},
	{"--local with --region is accepted", targetFile,
		`if t.Local && (t.Region != ""`, `if t.Local && (t.Region == "-"`, []string{"./infra/payhook/operate"}},
	{"a local run is used without --local", targetFile,
		`	if t.Local {
		run, err := up.Read(".")
		if err != nil {`, `	if run, err := up.Read("."); t.Local || err == nil {
		if err != nil {`, inTarget},
	{"send ends with success after an unexpected answer", sendFile,
		`	case unexpected > 0:`, `	case unexpected > 1000:`, inSend},

	// Client certificates.
	{"redrive is deployed without the truststore", "infra/build.go",
		`slices.Contains(trusting, name)`,
		`slices.Contains(trusting[:1], name)`, []string{"./infra -run TestTruststoreIsIn"}},
	{"a certificate for servers is accepted", clientCertFile,
		`KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}`,
		`KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}`, inClientCert},
	{"a revoked certificate is accepted", clientCertFile,
		`if slices.Contains(v.policy.Revoked, SerialOf(c)) {`,
		`if slices.Contains(v.policy.Revoked, SerialOf(c)) && len(chain) == 0 {`, inClientCert},
	{"only the certificate itself can be revoked, not its CA", clientCertFile,
		`if slices.Contains(v.policy.Revoked, SerialOf(c)) {`,
		`if slices.Contains(v.policy.Revoked, SerialOf(chain[0])) {`, inClientCert},
	{"a certificate with another key than the pinned is accepted", clientCertFile,
		`len(pins) > 0 && !slices.Contains(pins, PinOf(c))`,
		`len(pins) > 1 && !slices.Contains(pins, PinOf(c))`, inClientCert},
	{"the case of a certificate's subject is ignored", clientCertFile,
		`slices.Contains(subjects, Subject(c))`,
		`slices.ContainsFunc(subjects, func(s string) bool { return strings.EqualFold(s, Subject(c)) })`, inClientCert},
	{"a part of a certificate's DNS name is enough", clientCertFile,
		`if slices.Contains(subjects, name) {`,
		`if slices.ContainsFunc(subjects, func(s string) bool { return strings.HasSuffix(name, s) }) {`, inClientCert},
	{"a chain of five CAs is accepted", clientCertFile, `cas > MaxChain {`, `cas > MaxChain+1 {`, inClientCert},
	{"a weak key of a certificate is accepted", clientCertFile, `if err := checkStrength(c); err != nil {
		return nil, reject(Weak, "it %s", err)`, `if err := checkStrength(c); err != nil && c.IsCA {
		return nil, reject(Weak, "it %s", err)`, inWebhook},
	{"fields that contradict the certificate are ignored", clientCertFile, `		err = contradiction(c, p)
`, ``, inClientCert},
	{"two certificates in PEM are accepted", clientCertFile,
		`strings.Count(text, "-----BEGIN") != 1 || strings.Count(text, "-----END") != 1`,
		`len(rest) > len(text)`, []string{"./functions/webhook"}},
	{"a certificate is accepted from another domain", certificateFile,
		`!strings.EqualFold(r.domainName, o.domainName)`, `strings.EqualFold(r.domainName, "")`, inWebhook},
	{"a certificate is accepted from another API", certificateFile,
		`r.apiID != o.apiID`, `r.apiID == ""`, inWebhook},
	{"a certificate is accepted in another payload format", certificateFile,
		`r.version != "2.0"`, `r.version == ""`, inWebhook},
	{"both means that the certificate is enough", webhookMainFile,
		`	if s.UsesSignature() {`, `	if !s.UsesMTLS() {`, inWebhook},
	{"both means that the signature is enough", authenticationFile,
		`return w.Authentication != BySignature }`, `return w.Authentication == ByMTLS }`, inSettings},
	{"a certificate makes up for the signature", receiveFile,
		`	if s := r.mechanisms.Signature; s != nil {
		p.signature`, `	if s := r.mechanisms.Signature; s != nil &&
		(p.chain == nil || d.Headers["x-svc-signature"] == "") {
		p.signature`, inHistories},
	{"a certificate of anybody is accepted", receiveFile,
		`		if err != nil {
			return p, known, err
		}
		p.chain`, `		if err != nil && len(chain) == 0 {
			return p, known, err
		}
		p.chain`, inHistories},
	{"the payload of a parked delivery by mTLS can be changed", replayFile,
		`!bytes.Equal(digest[:], parked.Certificate.PayloadDigest)`, `bytes.Equal(digest[:], nil)`, inIntake},
	{"the certificate of a parked delivery makes up for its signature", replayFile,
		`parked.Certificate != nil && p.signature == (signature.Proof{}) && len(parked.JWK) == 0`,
		`parked.Certificate != nil`, inIntake},
	{"a parked certificate is verified as of now", replayFile,
		`VerifyCertificate(chain[0],
			parked.Certificate.AcceptedAt)`, `VerifyCertificate(chain[0],
			r.pipeline.opts.Now())`, inIntake},
	{"each repeat of a delivery by mTLS is parked anew", parkingFile, `		at = p.SentAt
`, `		at = p.ParkedAt
`, inWebhook},
	{"each webhook writes its certificate", lastCertFile,
		`; ok && now.Sub(at) < certificateEvery {`, `; ok && now.Sub(at) < 0 {`, inKeys},
	{"the days left ignore the client certificate", lastCertFile,
		`last != nil && last.NotAfter.Before(expires)`, `last != nil && last.NotAfter.Equal(expires)`, inKeys},

	// The order of the way.
	{"mark before publish", publishFile,
		`	failures := p.bus.Publish(publishing, events)
`, `	p.ledger.MarkPublished(ctx, entries)
	failures := p.bus.Publish(publishing, events)
`, inHistories},
	{"publish before record", pipelineFile,
		`	rec := p.record(ctx, delivery, start, inv)
`, `	for _, raw := range delivery.Events {
		p.bus.Publish(ctx, []bus.Event{busEvent(ledger.NewEntry(raw, delivery.DeliveryID, start))})
	}
	rec := p.record(ctx, delivery, start, inv)
`, inHistories},
	{"answer before recording", recordFile,
		`		rec.err = unrecorded(ctx, rec.err)
`, `		rec.err, rec.duplicates = nil, rec.duplicates+rec.unrecorded
`, inHistories},
	{"a failed record counts as a duplicate", recordFile,
		`			rec.unrecorded++
			rec.err = r.Err
`, `			rec.duplicates++
`, inHistories},
	{"publish duplicates too", recordFile,
		`		case r.Outcome == ledger.Duplicate:
			rec.eventIDs.add(Duplicate, id)
`, `		case r.Outcome == ledger.Duplicate:
			rec.entries = append(rec.entries, events[i].entry)
`, inHistories},
	{"mark despite a failed publish", publishFile,
		`		if failures[i] == nil {
			published = append(published, e)
		} else {`, `		published = append(published, e)
		if failures[i] != nil {`, inHistories},
	{"publish unchecked what came in out of time", ledgerRecordFile,
		`			results[i].Err = fmt.Errorf("ledger: %w", err)
`, `			results[i].Outcome = Recorded
`, inHistories},
	{"an event twice in one delivery is recorded twice", recordFile,
		`		contents[c] = true
`, ``, inHistories},
	{"of two contents in one delivery any may be published", recordFile,
		`		ids[e.entry.EventID] = true
`, ``, inIntake},
	{"of two contents in one delivery the second is recorded as well", recordFile,
		`			conflicts = append(conflicts, e)
			continue
`, `			conflicts = append(conflicts, e)
`, inIntake},
	{"due without grace", recordFile,
		`due: inv.heldUntil}`, `due: at}`, inHistories},
	{"due at the deadline, whatever the clocks", recordFile,
		`due: inv.heldUntil}`, `due: inv.heldUntil.Add(-p.opts.Grace)}`, inHistories},
	{"a conflict is not parked", pipelineFile,
		`	if len(rec.conflicts) > 0 {`, `	if len(rec.conflicts) > 1 {`, inHistories},
	{"a conflict that could not be parked is answered like one that was", pipelineFile,
		`				err = parkErr
`, `				_ = parkErr
`, inHistories},
	{"the claim is stored after the record", recordFile,
		`			w.results[i].Err = err
			return
`, `			entry = w.events[i].entry
`, inHistories},
	{"authenticated after the fact", receiveFile,
		`	if err != nil {
		return Result{Outcome: OutcomeOf(err), Err: err, Authentication: known,
			Steps: Steps{Authenticate: authenticated}}
	}
	result := r.pipeline.process(ctx, d.Payload, proof, inv)
`, `	result := r.pipeline.process(ctx, d.Payload, proof, inv)
	if err != nil {
		return Result{Outcome: OutcomeOf(err), Err: err, Authentication: known,
			Steps: Steps{Authenticate: authenticated}}
	}
`, inHistories},
	{"a signature that does not verify is let through", receiveFile,
		`	if err != nil || again.Key == nil {
`, `	if err == nil && again.Key == nil {
		return found, nil
	}
	if err != nil || again.Key == nil {
`, inHistories},
	{"skip the timestamp's window", receiveFile,
		`	if err := s.Window.Check(proof.Timestamp, now); err != nil {
		return proof, key, "", err
	}
`, ``, inHistories},

	// Redrive.
	{"a lease that ends with the run", redriveFile,
		`Lease(ctx, pending, r.holder, r.heldUntil)`, `Lease(ctx, pending, r.holder, r.start)`, inHistories},
	{"redrive takes what is not due", redriveFile,
		`Due(ctx, shard, r.start, cursors[shard], pageSize)`,
		`Due(ctx, shard, r.start.Add(time.Hour), cursors[shard], pageSize)`, inHistories},
	{"redrive looks at half of the shards", redriveFile,
		`make([]int, ledger.Shards) //`, `make([]int, ledger.Shards/2) //`, inHistories},
	{"marked as parked although it is not", parkFile,
		`	}); err != nil {
		return err
	}
	return p.ledger.MarkParked`, `	}); err != nil && p.ledger == nil {
		return err
	}
	return p.ledger.MarkParked`, inHistories},
	{"redrive drops what it can't publish", redriveFile,
		`		case f.Attempts >= r.maxAttempts || f.unpublishable():`, `		case f.Attempts >= r.maxAttempts:
			err = r.pipeline.ledger.MarkParked(ctx, []ledger.Entry{f.Entry})[0]
		case f.unpublishable():`, inHistories},

	// The ledger.
	{"record without a condition", ledgerRecordFile,
		`OR (attribute_not_exists(#shard) AND #expiresAt <= :now)"`,
		`OR attribute_exists(#eventId) OR attribute_exists(#shard) OR #expiresAt <= :now"`,
		inHistories},
	{"what is published can be recorded again", ledgerRecordFile,
		`OR (attribute_not_exists(#shard) AND #expiresAt <= :now)"`,
		`OR attribute_not_exists(#shard) OR #expiresAt <= :now"`, inHistories},
	{"the window is left to TTL", ledgerRecordFile,
		`		"attribute_not_exists(#eventId) OR (attribute_not_exists(#shard) AND #expiresAt <= :now)",
		map[string]string{"#eventId": names.LedgerKey, "#shard": names.LedgerPendingShard,
			"#expiresAt": names.LedgerTTL},
		map[string]types.AttributeValue{":now": number(l.now().Unix())})`,
		`		"attribute_not_exists(#eventId)", map[string]string{"#eventId": names.LedgerKey}, nil)`, inHistories},
	{"what is pending expires", itemFile,
		`Holder: holder[:], Claimed: e.Claimed,
`, `Holder: holder[:], Claimed: e.Claimed, ExpiresAt: e.RecordedAt.Unix(),
`, inHistories},
	{"compare ids and not digests", ledgerRecordFile,
		`	case old.digest() != e.Digest:
		return Conflict, nil
	case bytes.Equal`, `	case bytes.Equal`, inHistories},
	{"the digest covers white space", ledgerFile,
		`		case ' ', '\t', '\n', '\r':
			h.Write(raw[start:i])
			start = i + 1
`, ``, inHistories},
	{"a record that fails is swallowed", ledgerRecordFile,
		`		return 0, fmt.Errorf("ledger: record %s: %w", e.EventID, err)`,
		`		return Duplicate, nil`, inHistories},
	{"its own write is taken for a duplicate", ledgerRecordFile,
		`	case bytes.Equal(old.Holder, holder[:]):`,
		`	case bytes.Equal(old.Holder, holder[:]) && len(old.Holder) == 0:`, inLedger},
	{"everybody's write is taken for its own", ledgerRecordFile,
		`	case bytes.Equal(old.Holder, holder[:]):`,
		`	case bytes.Equal(old.Holder, holder[:]) || len(old.Holder) == len(holder):`, inHistories},
	{"the index entry is left behind", markFile,
		`REMOVE #event, #claimed, #shard, #due, #holder, #attempts"`,
		`REMOVE #event, #claimed, #holder, #attempts"`, inHistories},
	{"the event's bytes are left behind", markFile,
		`REMOVE #event, #claimed, #shard, #due, #holder, #attempts"`,
		`REMOVE #claimed, #shard, #due, #holder, #attempts"`, inHistories},
	{"a mark that fails is swallowed", markFile,
		`	if err := unlessConditional(err); err != nil {`,
		`	if err := unlessConditional(err); err != nil && false {`, []string{"./shared/intake"}},
	{"lease without a condition", pendingFile,
		`		ConditionExpression: aws.String("#due = :seen"),`,
		`		ConditionExpression: aws.String("#due = :seen OR attribute_exists(#due)"),`, inHistories},
	{"lease what is no longer pending", pendingFile,
		`		ConditionExpression: aws.String("#due = :seen"),`,
		`		ConditionExpression: aws.String("#due = :seen OR attribute_not_exists(#due)"),`, inHistories},
	{"its own lease is not recognised", pendingFile,
		`holder[:]) || leased.Due != milliseconds(until.UnixMilli()) {`, `holder[:]) || leased.Due != 0 {`, inLedger},
	{"everybody's lease is taken for its own", pendingFile,
		`!bytes.Equal(leased.Holder, holder[:]) ||`, `!bytes.Equal(leased.Holder, leased.Holder) ||`, inHistories},
	{"postpone what another holds", pendingFile,
		`aws.String("#holder = :holder AND attribute_exists(#shard)")`,
		`aws.String("attribute_exists(#shard) OR #holder = :holder")`, inLedger},
	{"a mark without a condition", markFile,
		`aws.String("attribute_exists(#shard) AND #digest = :digest")`,
		`aws.String("attribute_exists(#shard) OR #digest = :digest OR attribute_not_exists(#shard)")`, inLedger},

	// What AWS rejects before the function.
	{"more is promised than always fits", settingsFile,
		`const SafePayloadBytes = (invocationBytes - envelopeBytes) / 2`,
		`const SafePayloadBytes = (invocationBytes - envelopeBytes) * 3 / 4`, inWebhook},
	{"the sheet promises what the function accepts", "infra/subscription.go",
		`min(conf.Webhook.MaxPayloadBytes, settings.SafePayloadBytes)`,
		`max(conf.Webhook.MaxPayloadBytes, settings.SafePayloadBytes)`, inInfra},
	{"what the function rejects counts as rejected by AWS", handlerFile,
		`count(answer.Status >= 400 &&`, `count(answer.Status > 400 &&`, inWebhook},

	// Timestamps.
	{"an hour of one digit", rfc3339File,
		`	hour := p.number(2, 0, 23)
`, `	digits := 2
	if len(p.text) > 1 && p.text[1] == ':' {
		digits = 1
	}
	hour := p.number(digits, 0, 23)
`, inRFC3339},
	{"an offset of a day", rfc3339File,
		`3600 * p.number(2, 0, 23)`, `3600 * p.number(2, 0, 24)`, inRFC3339},
	{"an offset of 60 minutes", rfc3339File,
		`60 * p.number(2, 0, 59)`, `60 * p.number(2, 0, 60)`, inRFC3339},
	{"a comma before the fraction", rfc3339File,
		`p.text[0] != '.'`, `p.text[0] != '.' && p.text[0] != ','`, inRFC3339},
	{"a leap second at any time", rfc3339File,
		`second == 60 && (`, `second > 60 && (`, inRFC3339},
	{"no leap second", rfc3339File,
		`p.number(2, 0, 60)`, `p.number(2, 0, 59)`, inRFC3339},
	{"a consumer reads times in another way", "shared/payment/payment.go",
		`json.Unmarshal(raw, &event, strictTimes)`, `json.Unmarshal(raw, &event)`, inPayment},

	// Settings.
	{"a webhook can be replayed", conflictFile,
		`least := 2*w.Window.Tolerance + w.Timeout + time.Second`,
		`least := w.Window.Tolerance + w.Timeout + time.Second`, inSettings},
	{"a function refuses settings that contradict", settingsFile,
		`	w.KeysTable = r.resource`, `	r.contradictions(Deployment{Webhook: w})
	w.KeysTable = r.resource`, inSettings},
	{"any address is loopback", settingsFile,
		`return ip.IsLoopback()`, `return ip.IsLoopback() || ip.IsPrivate()`, inSettings},
	{"any http URL is taken", settingsFile,
		`!(u.Scheme == "http" && isLoopback(u.Hostname()))`,
		`!(u.Scheme == "http" || isLoopback(u.Hostname()))`, inSettings},
	{"parts of a second are taken", settingsFile,
		`	if d%time.Second != 0 {`, `	if d%time.Second != 0 && d < 0 {`, inSettings},
	{"China has the limit of the others", settingsFile,
		`strings.HasPrefix(r.getenv("AWS_REGION"), "cn-")`, `r.getenv("AWS_REGION") == "cn"`, inSettings},
	{"the largest event does not fit into an item", tablesFile,
		`400<<10 - 1<<10`, `400<<10 - 1<<6`, inLedger},

	// The bus.
	{"a request may be as large as the limit", busFile,
		`b.Size(e) < b.opts.MaxBytes`, `b.Size(e) <= b.opts.MaxBytes`, inBus},
	{"a batch may be as large as the limit", busFile,
		`bytes+size >= b.opts.MaxBytes`, `bytes+size > b.opts.MaxBytes`, inBus},
	{"an event that EventBridge rejects takes its batch with it", busFile,
		`if len(batch) > 1 && ctx.Err() == nil && faultOf(err) == ofEntry {`, `if false {`, inHistories},
	{"only a half of a rejected batch is sent again", busFile,
		`			b.publish(ctx, events, batch[half:], results)
`, ``, inBus},
	{"a fault that the SDK does not know is the service's", busFile,
		`		if status/100 != 4 || `, `		if true || `, inBus},
	{"a denied request is split", busFile,
		`ok && slices.Contains(callerErrors, api.ErrorCode())`,
		`ok && slices.Contains(callerErrors, "")`, inBus},
	{"a time that the SDK can't represent is sent changed", busFile,
		`t.Equal(time.Unix(0, t.UnixNano()))`, `!t.IsZero()`, inBus},
	{"what EventBridge is known to reject is sent", busFile,
		`results[i] = Check(e.Detail)`, `_, _ = i, e`, inBus},
	{"integers of any size are sent", checkFile,
		`case kind == '0' && isInteger(token.String()):`, `case kind == '0' && false:`, inBus},
	{"decimals count as integers", checkFile,
		`if c := number[i]; c == '.' || c == 'e'`, `if c := number[i]; c == 'e'`, inBus},
	{"1001 levels are sent", checkFile,
		`case dec.StackDepth() > MaxDepth:`, `case dec.StackDepth() > MaxDepth+1:`, inBus},
	{"a name of the payload is in the cause", decodeFile,
		`			name, at = "*", nil
`, `			at = nil
`, inPayment},
	{"what EventBridge rejects is tried again and again", redriveFile,
		`f.Attempts >= r.maxAttempts || f.unpublishable():`, `f.Attempts >= r.maxAttempts:`, inIntake},
	{"what EventBridge rejects waits for redrive", pipelineFile,
		`	unpublishable, cause := p.parkUnpublishable(ctx, pub.failed)
`, `	unpublishable, cause := 0, error(nil)
`, inWebhook},
	{"what can't be parked counts as parked", parkFile,
		`		if err == nil {
			parked[`, `		if err != context.Canceled {
			parked[`, inWebhook},
	{"ignore failed entries", busFile,
		`	entry := out.Entries[i]
	if entry.ErrorCode == nil && aws.ToString(entry.EventId) != "" {
		return nil, false
	}
`, `	entry := out.Entries[i]
	if true {
		return nil, false
	}
`, inHistories},
	{"an error of one entry is one of all", busFile,
		`		out, err := b.client.PutEvents(ctx, &eventbridge.PutEventsInput{Entries: entries})
`,
		`		out, err := b.client.PutEvents(ctx, &eventbridge.PutEventsInput{Entries: entries})
		if err == nil && out.FailedEntryCount > 0 {
			err = &EntryError{Code: "InternalFailure"}
		}
`, inHistories},
	{"a lost answer is taken for success", busFile,
		`	if err != nil {
		return err, faultOf(err) == ofService
	}
`, `	if err != nil {
		return nil, false
	}
`, inHistories},
	{"the wrong positions are tried again", busFile,
		`				entries[again], batch[again] = entries[i], position
`, `				entries[again], batch[again] = entries[again], position
`, inHistories},
	{"eleven entries in a batch", busFile,
		`const MaxEntries = 10`, `const MaxEntries = 11`, inBus},
	{"the bytes of a batch are not counted", busFile,
		`		bytes += size
`, `		_ = size
`, inBus},
	{"the event is encoded again", busFile,
		`aws.String(string(e.Detail)),`, `aws.String(" " + string(e.Detail)),`, inHistories},

	{"what is postponed does not count as pending", redriveFile,
		`	r.measureWaiting(ctx)
`, ``, inIntake},
	{"what receivers hold hides what is postponed", pendingFile,
		`"#shard = :shard AND #due > :at", false, nil, limit)`,
		`"#shard = :shard AND #due > :at", true, nil, limit)`, inIntake},

	// Large deliveries.
	{"what the ledger has is written again", recordFile,
		`	if repeated {
`, `	if repeated && len(rest) == 0 {
`, inIntake},
	{"a new delivery is looked up", recordFile,
		`	if repeated {
`, `	if len(rest) > 0 {
`, inIntake},
	{"a known large event is uploaded again", recordFile,
		`	unknown := w.skipKnown(ctx, large)
`, `	unknown := large
`, inIntake},
	{"an item whose window has passed is skipped", recordFile,
		`			case !ok || !known.Current:`, `			case !ok:`, inIntake},
	{"a conflict that is looked up is a duplicate", recordFile,
		`				w.results[i].Outcome = ledger.Conflict
`, `				w.results[i].Outcome = ledger.Duplicate
`, inIntake},
	{"a look-up takes all the time", recordFile,
		`deadline.Sub(p.opts.Now())/2)`, `deadline.Sub(p.opts.Now()))`, inIntake},
	{"what DynamoDB leaves unprocessed is taken for unknown", knownFile,
		`		if len(rest) == 0 {
			return known, nil
		}
`, `		if len(rest) >= 0 {
			return known, nil
		}
`, inLedger},
	{"redrive ignores that it could not park", redriveFile,
		`			r.result.Parked++
		}
		r.note(err)
`, `			r.result.Parked++
		}
`, inIntake},

	// Replay.
	{"replay without verifying the signature", replayFile,
		`		if err := signature.Verify(key, parked.Payload, p.signature); err != nil {
			return p, known, err
		}
`, ``, inIntake},
	{"replay with any exponent", replayFile,
		`keys.ParseJWK(parked.JWK, parked.KeyID, r.exponents)`,
		`keys.ParseJWK(parked.JWK, parked.KeyID, []int{3, 65537})`, inIntake},
	{"replay the whole delivery of a conflict", replayFile,
		`	case parked.Reason == parking.Conflict:
`, `	case parked.Reason == parking.Conflict && version != ParkedVersion:
`, inIntake},
	{"replay a conflict without a decision", replayFile,
		`version != FirstVersion && version != ParkedVersion:`,
		`version != FirstVersion && version != ParkedVersion && version != NoVersion:`, inIntake},
	{"the first version stays although it was never published", replayFile,
		`		case ok && first.Parked:`, `		case ok && first.Parked && first.Pending:`, inIntake},
	{"one of several parked contents is chosen", replayFile,
		`		if id := e.entry.EventID; ids[id] {`,
		`		if id := e.entry.EventID; ids[id] && len(events) > 2 {`, inIntake},
	{"a changed event is restored", replayFile,
		`!parked.Claimed && entry.Digest != signed {`, `parked.Claimed && entry.Digest == signed {`, inIntake},
	{"a restored event keeps the time of its first recording", replayFile,
		`ledger.NewEntry(raw, parked.DeliveryID, now)`,
		`ledger.NewEntry(raw, parked.DeliveryID, parked.RecordedAt)`, inIntake},
	{"a replay goes on when its time is up", replayFile,
		`r.summary(ctx, write(ctx,`, `r.summary(ctx, write(context.WithoutCancel(ctx),`, inIntake},
	{"a conflict of a restored event counts as a duplicate", ledgerRecordFile,
		`		case old.digest() != e.Digest:
			return Conflict, nil
		}
`, `		}
`, inIntake},
	{"a replaced version overwrites one that is pending", ledgerRecordFile,
		`(attribute_not_exists(#shard) AND (#digest <> :digest OR attribute_exists(#parkedAt)))`,
		`(attribute_not_exists(#shard) OR (#digest <> :digest OR attribute_exists(#parkedAt)))`, inIntake},
	{"the window begins when an event is recorded", markFile,
		`later(l.now(), e.RecordedAt).Add(l.window)`, `e.RecordedAt.Add(l.window)`, inLedger},
	{"what was not accepted is marked as replayed", redriveHandlerFile,
		`			if r.Outcome == intake.Accepted || r.Outcome == intake.Conflict && r.Parked != "" {`,
		`			if r.Outcome != intake.KeyRefused {`, inRedrive},
	{"a conflict is marked as replayed", redriveHandlerFile,
		`r.Outcome == intake.Conflict && r.Parked != "" {`, `r.Outcome == intake.Conflict {`, inRedrive},
	{"settled without a reason", redriveHandlerFile,
		`	if strings.TrimSpace(e.Reason) == "" {`,
		`	if strings.TrimSpace(e.Reason) == "" && len(e.Settle) == 0 {`, inRedrive},
	{"the outcome line of a large delivery is long", "shared/intake/fate.go",
		`const maxEventIDs = 10`, `const maxEventIDs = 1000`, []string{"./functions/webhook"}},
	{"an event that is left to redrive is logged as published", "shared/intake/fate.go",
		`		if !missing[e.EventID] {`, `		if len(e.EventID) > 0 {`, []string{"./functions/webhook"}},
	{"a line that reaches the log late is not shown", tailFile,
		`newest.Add(-overlap)`, `newest`, inLogs},
	{"an empty page ends the reading of a log", tailFile,
		`if aws.ToString(page.NextToken) == "" {`, `if aws.ToString(page.NextToken) == "" || len(page.Events) == 0 {`,
		inLogs},
	{"a line that was read before an error is shown again or never", tailFile,
		`			return entries, fmt.Errorf(`, `			return nil, fmt.Errorf(`, inLogs},
	{"a log is not read any more after AWS could not be reached", tailFile,
		`	if !answered || !known {
		return false`, `	if !answered || !known {
		return true`, inLogs},
	{"replay --all includes conflicts", replayCommandFile,
		`			if l.Reason == string(parking.Conflict) {`,
		`			if l.Reason == string(parking.Conflict) && len(chosen) > 1000 {`, inOperate},
	{"what is settled is listed as open", parkedCommandFile,
		`State: cmp.Or(states[name], parking.Open)}`,
		`State: cmp.Or(parking.State(strings.TrimPrefix(string(states[name]), "settled")), parking.Open)}`, inOperate},

	// Parking and claim check.
	{"parked without an index", parkingFile,
		`	if err := g.Wait(); err != nil {
		return "", false, err
	}
`, `	_ = g.Wait()
`, inParking},
	{"settling closes nothing", parkingFile,
		`range []State{Settled, Replayed} {`, `range []State{Replayed} {`, inHistories},
	{"settling is noted as a replay", parkingFile,
		`s.note(ctx, Settled, name, n)`, `s.note(ctx, Replayed, name, n)`, inHistories},
	{"parking the same again writes it again", parkingFile,
		`		IfNoneMatch:    aws.String("*"),
`, ``, inParking},
	{"every second try is taken for a repeat", parkingFile,
		`		return !retried.Load(), nil`, `		return true, nil`, inParking},
	{"a write beside another fails for good", parkingFile,
		`retry.AddWithErrorCodes(o.Retryer, "ConditionalRequestConflict")`,
		`retry.AddWithErrorCodes(o.Retryer, "ConditionalRequest")`, inParking},
	{"a parked name ignores which events are in question", parkingFile,
		`		add([]byte(id))
`, `		_ = id
`, inParking},
	{"a listing starts again after a thousand", parkingFile,
		`		in.ContinuationToken = out.NextContinuationToken
`, ``, inParking},
	{"a repeated webhook is counted as parked again", handlerFile,
		`count(r.Parked != "" && !r.ParkedBefore)`, `count(r.Parked != "")`, inWebhook},
	{"a claim is not held against its digest", claimFile,
		`len(event) != ref.Size || hex.EncodeToString(sum[:]) != ref.SHA256`,
		`len(event) != ref.Size || len(sum) != len(ref.SHA256)/2`, inClaimcheck},
	{"an event that S3 denies access to is gone", claimFile,
		`return nil, fmt.Errorf("%w: %w", ErrDenied, err)`, `return nil, ErrGone`, inClaimcheck},

	// What the functions may do.
	{"redrive may not replay", "infra/redrive.go",
		`[]string{"dynamodb:BatchGetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"}, ledger.TableArn()`,
		`[]string{"dynamodb:BatchGetItem", "dynamodb:UpdateItem"}, ledger.TableArn()`, inPermissions},
	{"redrive may do more than it calls", "infra/redrive.go",
		`[]string{"events:PutEvents"}, bus.EventBusArn()`,
		`[]string{"events:PutEvents", "events:PutPermission"}, bus.EventBusArn()`, inPermissions},
	{"redrive is not told that nothing is parked under a name", "infra/buckets.go",
		`	f.allow([]string{"s3:ListBucket"}, b.parking.BucketArn())
`, ``, inPermissions},
	{"a permission for a secret's name instead of its ARN", "infra/token.go",
		`"secretsmanager:PutSecretValue"}, secret.AttrId())`,
		`"secretsmanager:PutSecretValue"}, secret.Ref())`, inPermissions},

	// Who may send.
	{"the first header wins", carrierFile,
		`	case found > 1 || strings.Contains(value, ","):
		return "", ErrRepeated
`, `	case found > 1:
		return "", ErrRepeated
	case strings.Contains(value, ","):
		return value[:strings.Index(value, ",")], nil
`, inSignature},
	{"only old timestamps are refused", windowFile,
		`at.Before(now.Add(-w.Tolerance)) || at.After(now.Add(w.Tolerance))`,
		`at.Before(now.Add(-w.Tolerance))`, inSignature},
	{"base64 that is not canonical is accepted", signatureFile,
		`	sig, err := encoding.DecodeString(unpadded)
	if err != nil || len(sig) != size || encoding.EncodeToString(sig) != unpadded {`,
		`	sig, err := base64.RawURLEncoding.DecodeString(unpadded)
	if err != nil || len(sig) != size {`, inSignature},
	{"the key id is not signed", signatureFile,
		`	tail = append(tail, keyID...)
`, `	_ = keyID
`, inSignature},
	{"duplicate names are accepted", decodeFile,
		`	w.dec.Reset(&w.buffer)
	return w`,
		`	w.dec.Reset(&w.buffer, jsontext.AllowDuplicateNames(true))
	return w`, inPayment},
	{"names of the wrong case are accepted", decodeFile,
		`			return i, false
`, `			return i, true
`, inPayment},
	{"a delivery without events is accepted", decodeFile,
		`	if s.elements == eventSchema && elements == 0 {`,
		`	if s.elements == eventSchema && elements < 0 {`, inPayment},
	{"what stands behind the delivery is ignored", decodeFile,
		`; err != io.EOF {`, `; err != io.EOF && false {`, inPayment},

	// Keys.
	{"a key of another id is accepted", jwkFile,
		`demand(len(k.Kid) == len(id) && strings.EqualFold(k.Kid, id), WrongKeyID)`,
		`demand(len(k.Kid) == len(id), WrongKeyID)`, inKeys},
	{"a private key is accepted", jwkFile,
		`demand(k.D == nil && `, `demand(k.D != nil || `, inKeys},
	{"a key is used past its hard age", keysFile,
		`	if e == nil || e.key == nil || c.opts.Now().Sub(e.fetchedAt) >= c.opts.MaxAge {`,
		`	if e == nil || e.key == nil {`, inKeys},
	{"a key in memory is used past its hard age", keysFile,
		`		case age < c.opts.MaxAge && now.Before(e.retryAt):`,
		`		case age >= 0 && now.Before(e.retryAt):`, inKeys},
	{"a key of the table is fresh for ever", keysFile,
		`	case c.fresh(cached, now):
		c.remember`,
		`	case !cached.withdrawn():
		c.remember`, inKeys},
	{"an unknown id is not remembered", keysFile,
		`	c.unknown[id] = unknown{at.Add(c.opts.UnknownTTL), withdrawn}
`, ``, inKeys},
	{"one 404 removes a key at once", keysFile,
		`	remove := cached == nil || asked.Sub(since) >= c.opts.UnknownGrace`,
		`	remove := true`, inKeys},
	{"one 404 removes a key at once, in the table too", keysTableFile,
		`"OR (fetchedAt <= :at AND unknownSince <= :oldest)"`,
		`"OR fetchedAt <= :at OR unknownSince <= :oldest"`, inKeys},
	{"a 404 counts where the table could not be read", keysFile,
		`	skipTable := tableFailed && cached != nil
`, `	skipTable := tableFailed
`, inKeys},
	{"the grace of a key begins with the question", keysFile,
		`	since := c.opts.Now().Truncate(time.Millisecond)
`, `	since := asked
`, inKeys},
	{"each function counts the grace of a key on its own", keysTableFile,
		`		unknownSince: milliseconds(item[attrUnknownSince]),
`, ``, inKeys},
	{"each function asks for a key in its grace on its own", keysTableFile,
		`		unknownAt:    milliseconds(item[attrUnknownAt]),
`, ``, inKeys},
	{"a late 404 undoes a good answer", keysTableFile,
		`aws.String("attribute_exists(jwk) AND expiresAt > :now AND fetchedAt <= :at")`,
		`aws.String("attribute_exists(jwk) AND expiresAt > :now AND (fetchedAt <= :at OR fetchedAt > :at)")`, inKeys},
	{"a key in its grace counts as fresh", keysFile,
		`	return !e.withdrawn() && now.Sub(e.fetchedAt) < c.opts.Freshness`,
		`	return now.Sub(e.fetchedAt) < c.opts.Freshness`, inKeys},
	{"a key in its grace is not marked", keysFile,
		`Source: from, Withdrawn: e.withdrawn()}`, `Source: from}`, inKeys},
	{"a known source has no reserve", budgetFile,
		`	if !known {
		return false, failed
	}
`, `	if !known || known {
		return false, failed
	}
`, inKeys},
	{"a stranger has the reserve", budgetFile,
		`	if !known {
		return false, failed
	}
`, `	if !known && ok {
		return false, failed
	}
`, inKeys},
	{"a source is recorded with every webhook", sourcesFile,
		`	if ok && now.Before(last.recordAt) {
		return
	}
`, `	if ok && now.Before(last.recordAt) && now.IsZero() {
		return
	}
`, inKeys},
	{"all IPv6 addresses of a network are sources of their own", sourcesFile,
		`		bits = 64`, `		bits = 128`, inKeys},
	{"the signature's form is checked after the budget is spent", receiveFile,
		`keys.MinModulusBytes, keys.MaxModulusBytes); err != nil {`,
		`keys.MinModulusBytes, keys.MaxModulusBytes); err != nil && false {`, inIntake},
	{"the source of a forgery becomes known", receiveFile,
		`	proof, known, err := r.authenticate(ctx, d, inv.start)
`, `	if s := r.mechanisms.Signature; s != nil {
		s.Keys.RecordSource(ctx, d.SourceIP)
	}
	proof, known, err := r.authenticate(ctx, d, inv.start)
`, inIntake},
	{"the source of an authentic webhook does not become known", receiveFile,
		`		s.Keys.RecordSource(ctx, d.SourceIP)
`, `		_ = s
`, inIntake},
	{"the budget is not enforced", keysTableFile,
		`aws.String("attribute_not_exists(misses) OR misses < :budget")`,
		`aws.String("attribute_not_exists(misses) OR misses < :budget OR misses >= :budget")`, inKeys},
	{"an older key replaces a newer one", keysTableFile,
		`aws.String("attribute_not_exists(fetchedAt) OR fetchedAt <= :at")`,
		`aws.String("attribute_not_exists(fetchedAt) OR fetchedAt <= :at OR fetchedAt > :at")`, inKeys},

	// The answer.
	{"no alarm tells of a withdrawn key", handlerFile,
		`		{Metric: keyWithdrawn, Value: count(r.Key.Withdrawn)},
`, ``, inWebhook},
	{"the payload shares memory that Lambda's library uses again", requestFile,
		`	text, _ := jsontext.AppendUnquote(make([]byte, 0, len(v)), v)
	return text`, `	text, _ := jsontext.AppendUnquote(v[:0:len(v)], v)
	return text`, inWebhook},
	{"a payload in base64 is limited by its text", requestFile,
		`		if size-2 > maxBytes {`, `		if size > maxBytes {`, inWebhook},
	{"a source address is read from a header", handlerFile,
		`	addr, err := netip.ParseAddr(r.sourceIP)`,
		`	addr, err := netip.ParseAddr(r.headers["x-forwarded-for"])`, inWebhook},
	{"an outage is answered like a success", outcomeFile,
		`LedgerUnavailable, unavailable("Not every event could be recorded.", 5, names.NotStoredMetric)`,
		`LedgerUnavailable, Answer{Metric: "Accepted"}`, inWebhook},
	{"a forged delivery learns why", outcomeFile,
		`SignatureMismatch, unauthentic}`,
		`SignatureMismatch, rejected(http.StatusForbidden, "The signature does not match.")}`, inWebhook},
	{"a failure without an outcome counts as accepted", outcomeFile,
		`	return LedgerUnavailable
`, `	return Accepted
`, inIntake},
	{"a rejected webhook writes a metric without a name", outcomeFile,
		`Detail: detail, Metric: "Rejected", Level`, `Detail: detail, Level`, inWebhook},

	// Patterns for consumers.
	{"the pattern for high amounts compares them with limits", "events/rules/high-value.json",
		`"amount": [{ "exists": true }]`, `"amount": [{ "numeric": [">=", 1000000] }]`, []string{"./events/rules"}},

	{"the schema accepts a reference as an event", "events/schema/event.json", `"claimCheck"`, `"claim"`, inPayment},
	{"the schema accepts an eventId that is not a UUID", "events/schema/event.json",
		`[0-9A-Fa-f]{12}$`, `[0-9A-Fa-f]*`, inPayment},
	{"the registry's document has another schema of the detail", "events/schema/schema.go",
		`Reference: "claim-check.json"}[name]`, `Reference: "event.json"}[name]`, inPayment},

	{"schemaRegistry has no effect", "infra/schemas.go", `!conf.SchemaRegistry`, `false`,
		[]string{"./infra -run TestTheSchemaRegistry"}},

	// The access token.
	{"the token's refresh does not adapt to the lifetime", refresherFile,
		`	return min(preferred, max(r.reserve(), lifetime-writeInterval))`, `	return preferred`, inToken},
	{"the token's refresh leaves fewer than three runs", refresherFile,
		`max(r.reserve(), lifetime-writeInterval)`, `max(r.interval, lifetime-writeInterval)`, inToken},
	{"a token that Secrets Manager refused is requested again", refresherFile,
		`		r.rememberUnsaved(fresh)
`, ``, inToken},
	{"the token endpoint is asked every minute for a newer token", refresherFile,
		`		r.rememberRepeated(stored)
`, ``, inToken},
	{"a secret that takes no more tokens raises no alarm", refresherFile,
		`ok && failure.Code == limitExceeded`, `ok && failure.Code == ""`, inToken},
	{"tokens with a short remaining life raise the alarm of the quota", refresherFile,
		`		!stored.IssuedAt.IsZero() && fresh.IssuedAt.Sub(stored.IssuedAt)+lifetimeTolerance >= writeInterval {
`, `		false {
`, inToken},
	{"a token without a newer one raises the alarm of its life", refresherFile,
		`	if o == Unchanged && remaining > 0 {`, `	if o == Superseded && remaining > 0 {`, inToken},
	{"scopes have no effect", tokenMainFile, `		Scopes:      s.Scopes,
`, ``, inTokenMain},
	{"credentialEncoding has no effect", tokenMainFile, `		FormEncoded: s.FormEncoded,
`, ``, inTokenMain},
	{"tokenEndpointTimeout has no effect", tokenMainFile, `		Timeout:     s.EndpointTimeout,
`, ``, inTokenMain},
	{"tokenRefreshPercent has no effect", tokenMainFile,
		`	options.RefreshPercent, options.Interval = s.RefreshPercent, settings.TokenInterval`,
		`	options.Interval = settings.TokenInterval`, inTokenMain},
}
