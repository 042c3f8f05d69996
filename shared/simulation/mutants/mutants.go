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
	batchFile        = "shared/ledger/batch.go"
	pendingFile      = "shared/ledger/pending.go"
	knownFile        = "shared/ledger/known.go"
	busFile          = "shared/bus/bus.go"
	checkFile        = "shared/bus/check.go"
	keysFile         = "shared/keys/keys.go"
	keysItemFile     = "shared/keys/item.go"
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
	connectionsFile  = "shared/awsenv/connections.go"
	runtimeFile      = "shared/awsenv/runtime.go"
	rfc3339File      = "shared/rfc3339/rfc3339.go"
	consumerFile     = "events/consumer/function/handler.go"
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
	replayCommandFile  = "infra/cmd/payhook/operate/replay.go"
	parkedCommandFile  = "infra/cmd/payhook/operate/parked.go"
	creationFile       = "infra/cmd/payhook/creation/creation.go"
	temporaryFile      = "infra/cmd/payhook/listen/temporary.go"
	listenFile         = "infra/cmd/payhook/listen/session.go"
	forwardFile        = "infra/cmd/payhook/listen/forward.go"
	tailFile           = "infra/cmd/payhook/logs/tail.go"
	programFile        = "infra/cmd/payhook/cli/cli.go"
	targetFile         = "infra/cmd/payhook/target/target.go"
	sendFile           = "infra/cmd/payhook/send/send.go"
	sendWhereFile      = "infra/cmd/payhook/send/where.go"
	upFile             = "infra/local/up/up.go"
	carriersFile       = "shared/paymenttest/carriers.go"
	captureFile        = "functions/webhook/capture.go"
	refusedFile        = "shared/refused/refused.go"
	explainFile        = "shared/explain/explain.go"
	explainKeyFile     = "shared/explain/key.go"
	explainMessageFile = "shared/explain/message.go"
	explainRequestFile = "infra/cmd/payhook/explain/request.go"
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
	inConsumer  = []string{"./events/consumer/function"}
	inWebhook   = []string{"./functions/webhook"}
	inAWSEnv    = []string{"./shared/awsenv"}
	inToken     = []string{"./shared/token"}
	inTokenMain = []string{"./functions/token"}
	inParking   = []string{"./shared/parking"}
	inRedrive   = []string{"./functions/redrive"}
	inListen    = []string{"./infra/cmd/payhook/listen"}
	inLogs      = []string{"./infra/cmd/payhook/logs"}
	inOperate   = []string{"./infra/cmd/payhook/operate"}
	inStatus    = []string{"./infra/cmd/payhook/status"}
	inConsole   = []string{"./infra/cmd/payhook/console -skip TestThePage|TestHostile"}
	inLocal     = []string{"./infra/local -run TheTable|ACell"}
	inLocalUp   = []string{"./infra/local -run TestUpStores|TestTheLocalRunIsStarted|TestTheSettingsOfTheService"}
	inCreation  = []string{"./infra/cmd/payhook/creation"}
	inProgram   = []string{"./infra/cmd/payhook/cli"}
	inTarget    = []string{"./infra/cmd/payhook/target"}
	inSend      = []string{"./infra/cmd/payhook/send"}
	inRefused   = []string{"./shared/refused"}
	inExplain   = []string{"./shared/explain"}

	inPaymenttest = []string{"./shared/paymenttest"}
	inClientCert  = []string{"./shared/clientcert"}

	inClaimcheck  = []string{"./shared/claimcheck"}
	inPermissions = []string{"./infra/payhook -run TestEachFunctionHas"}
)

var mutants = []mutant{
	// A first deployment that failed.
	{"a stack that was created loses its protection from deletion", creationFile,
		`!slices.Contains(neverCreated, s.StackStatus)`, `slices.Contains(neverCreated, "")`, inCreation},
	{"a stack whose rollback failed stays protected", creationFile,
		`types.StackStatusRollbackComplete, types.StackStatusRollbackFailed}`,
		`types.StackStatusRollbackComplete}`, inCreation},
	{"a newer stack of the same name loses its protection", creationFile,
		`		StackName: s.StackId, EnableTerminationProtection: aws.Bool(false),`,
		`		StackName: &stack, EnableTerminationProtection: aws.Bool(false),`, inCreation},

	// The command explain.
	{"explain looks up every UUID of a request", explainKeyFile,
		`len(k.order) >= k.limit || `, ``, inExplain},
	{"explain retries a key endpoint that does not answer without limit", explainKeyFile,
		` || k.failed >= 2`, ``, inExplain},
	{"explain computes hashes without a limit", explainMessageFile,
		`w.exceeded || w.hashed > w.limit`, `w.exceeded`, inExplain},
	{"explain accepts a payload if another form of it was signed", explainFile,
		`	case m.payload.name != "":
		r.Verdict = Changed
`, ``, inExplain},
	{"explain accepts a key that must not be used", explainFile,
		`if k.state == rejected && k.exponents == nil {`, `if k.state == "" {`, inExplain},
	{"the last line feed of a file counts as part of the payload", explainRequestFile,
		`n < len(body) &&`, `n < 0 &&`, []string{"./infra/cmd/payhook/explain"}},

	// Practising a rejected webhook in the local run.
	{"send ignores the flags that say where the proof is carried", sendFile,
		`, Carriers: o.carriers,`, `,`, inSend},
	{"a flag for one part of the proof changes what the local run's settings say of the others",
		"infra/cmd/payhook/webhook/webhook.go",
		`cmp.Or(flag, conf[setting.Key], setting.Default)`, `cmp.Or(flag, setting.Default)`, inSend},
	{"a webhook that was answered 401 does not name payhook explain", sendFile,
		`if unauthorized > 0 && o.why != ""`, `if unauthorized > 1 && o.why != ""`, inSend},
	{"send names payhook explain for a webhook to another URL", sendWhereFile,
		`		o.url = run.WebhookURL
		o.why = whyLocal(run)
	}
`, `		o.url = run.WebhookURL
	}
	o.why = whyLocal(run)
`, inSend},
	{"the simulated service puts two parts of the proof into one place", carriersFile,
		`if a.at == b.at || isHeader`, `if isHeader`, inPaymenttest},
	{"a proof is put into a header that an HTTP client replaces", carriersFile,
		`if isHeader && slices.Contains(`, `if !isHeader && slices.Contains(`, inPaymenttest},
	{"the key with the id that is not sent is not published", "shared/paymenttest/sender.go",
		`		s.Publish(id, sender.Key.JWK())
`, ``, inPaymenttest},
	{"a service that does not send its key id has a key with another id", "shared/paymenttest/key.go",
		`		key.ID = id
`, `		_ = id
`, inPaymenttest},
	{"explain says how to start a local run that is not meant", "infra/cmd/payhook/explain/explain.go",
		`r.Verdict == explain.Settings && o.target.Local && s.settings != nil`,
		`r.Verdict == explain.Settings && s.settings != nil`, []string{"./infra/cmd/payhook/explain"}},
	{"explain breaks the command for the local run into lines", "infra/cmd/payhook/explain/explain.go",
		`\n  %s\n", command)`, `\n  %s\n", wrapped(command, 60))`, []string{"./infra/cmd/payhook/explain"}},
	{"the local run is started again without the settings that it has", upFile,
		`	maps.Copy(all, f.Given)
`, ``, inLocalUp},
	{"the simulated service ignores what cdk.json says of it", "infra/local/command.go",
		`		conf[s.Key] = text
`, `		_ = text
`, inLocalUp},
	{"cdk.json replaces the settings that are given to make up", "infra/local/command.go",
		`		maps.Copy(o.settings, o.given)
`, `		_ = maps.Copy[map[string]string, map[string]string]
`, inLocalUp},
	{"make up stores no rejected webhooks", "infra/local/stack.go",
		`	conf[settings.CaptureRefused.Key] = "7d" // the longest
`, ``, inLocalUp},
	{"make up stores rejected webhooks although the settings say off", "infra/local/stack.go",
		`given || !o.capture ||`, `given && !o.capture ||`, inLocalUp},

	// The capture of rejected webhooks.
	{"authentic webhooks are captured", captureFile,
		` || !intake.BeforeProof(result.Outcome) {`, ` {`, inWebhook},
	{"requests without a body are captured", captureFile,
		`intake.ErrPayloadEmpty`, `intake.ErrMethod`, inWebhook},
	{"credentials are captured", captureFile,
		`refused.WithoutCredentials(r.headers)`, `r.headers`, inWebhook},
	{"the capture does not end", refusedFile,
		`if spent || !now.Before(c.until) {`, `if spent {`, inRefused},
	{"the capture has a limit for each process", refusedFile,
		`	if !left {
`, `	if !left && c.spent.Equal(hour) {
`, inRefused},
	{"the capture goes on without its budget", refusedFile,
		`	if err != nil {
		return "", err
	}
	if !left {`, `	if !left && err == nil {`, inRefused},
	{"the capture takes any time", refusedFile,
		`context.WithTimeout(ctx, Timeout)`, `context.WithTimeout(ctx, time.Hour)`, inRefused},
	{"the capture stores large bodies", refusedFile,
		`if len(r.Payload) > MaxPayload {`, `if len(r.Payload) > 2*MaxPayload {`, inRefused},

	// The program.
	{"a command asks without a terminal", programFile,
		`	if !p.Terminal {`, `	if !p.Terminal && len(question) > 1000 {`, inProgram},
	{"an answer other than yes counts as yes", programFile,
		`if text == "y" || text == "yes" {`, `if text != "n" {`, []string{"./infra/cmd/payhook/operate"}},
	{"a denied request ends with the exit code for wrong usage", programFile,
		`		status = StatusUnreachable`, `		status = StatusUsage`, inProgram},
	{"--local with --region is accepted", targetFile,
		`if t.Local && (t.Region != ""`, `if t.Local && (t.Region == "-"`, []string{"./infra/cmd/payhook/operate"}},
	{"a local run is used without --local", targetFile,
		`	if t.Local {
		run, err := up.Read(".")
		if err != nil {`, `	if run, err := up.Read("."); t.Local || err == nil {
		if err != nil {`, inTarget},
	{"send exits with 0 after an unexpected answer", sendFile,
		`	case unexpected > 0:`, `	case unexpected > 1000:`, inSend},

	// Client certificates.
	{"the redrive function has no truststore", "infra/payhook/build.go",
		`slices.Contains(trusting, name)`,
		`slices.Contains(trusting[:1], name)`, []string{"./infra/payhook -run TestTruststoreIsIn"}},
	{"a server certificate is accepted as a client certificate", clientCertFile,
		`KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}`,
		`KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}`, inClientCert},
	{"a revoked certificate is accepted", clientCertFile,
		`if slices.Contains(v.policy.Revoked, SerialOf(c)) {`,
		`if slices.Contains(v.policy.Revoked, SerialOf(c)) && len(chain) == 0 {`, inClientCert},
	{"the revocation of a CA is ignored", clientCertFile,
		`if slices.Contains(v.policy.Revoked, SerialOf(c)) {`,
		`if slices.Contains(v.policy.Revoked, SerialOf(chain[0])) {`, inClientCert},
	{"a certificate with an unpinned key is accepted", clientCertFile,
		`len(pins) > 0 && !slices.Contains(pins, PinOf(c))`,
		`len(pins) > 1 && !slices.Contains(pins, PinOf(c))`, inClientCert},
	{"subjects are compared without case", clientCertFile,
		`slices.Contains(subjects, Subject(c))`,
		`slices.ContainsFunc(subjects, func(s string) bool { return strings.EqualFold(s, Subject(c)) })`, inClientCert},
	{"a suffix of a certificate's DNS name is enough", clientCertFile,
		`if slices.Contains(subjects, name) {`,
		`if slices.ContainsFunc(subjects, func(s string) bool { return strings.HasSuffix(name, s) }) {`, inClientCert},
	{"a chain of five CAs is accepted", clientCertFile, `cas > MaxChain {`, `cas > MaxChain+1 {`, inClientCert},
	{"a certificate with a weak key is accepted", clientCertFile, `if err := checkStrength(c); err != nil {
		return nil, reject(Weak, "it %s", err)`, `if err := checkStrength(c); err != nil && c.IsCA {
		return nil, reject(Weak, "it %s", err)`, inWebhook},
	{"event fields that contradict the certificate are ignored", clientCertFile, `		err = contradiction(c, p)
`, ``, inClientCert},
	{"two certificates in PEM are accepted", clientCertFile,
		`strings.Count(text, "-----BEGIN") != 1`,
		`len(rest) > len(text)`, []string{"./functions/webhook"}},
	{"a certificate is accepted from another domain", certificateFile,
		`!strings.EqualFold(r.domainName, o.domainName)`, `strings.EqualFold(r.domainName, "")`, inWebhook},
	{"a certificate is accepted from another API", certificateFile,
		`r.apiID != o.apiID`, `r.apiID == ""`, inWebhook},
	{"a certificate is accepted in payload format 1.0", certificateFile,
		`r.version != "2.0"`, `r.version == ""`, inWebhook},
	{"authentication=both accepts a certificate alone", webhookMainFile,
		`	if s.UsesSignature() {`, `	if !s.UsesMTLS() {`, inWebhook},
	{"authentication=both accepts a signature alone", authenticationFile,
		`return w.Authentication != BySignature }`, `return w.Authentication == ByMTLS }`, inSettings},
	{"a certificate replaces the signature", receiveFile,
		`	if s := r.mechanisms.Signature; s != nil {
		p.signature`, `	if s := r.mechanisms.Signature; s != nil &&
		(p.chain == nil || d.Headers["x-svc-signature"] == "") {
		p.signature`, inHistories},
	{"the chain of a certificate is not verified", receiveFile,
		`		if err != nil {
			return p, known, err
		}
		p.chain`, `		if err != nil && len(chain) == 0 {
			return p, known, err
		}
		p.chain`, inHistories},
	{"a parked mTLS delivery is replayed with a changed payload", replayFile,
		`!bytes.Equal(digest[:], parked.Certificate.PayloadDigest)`, `bytes.Equal(digest[:], nil)`, inIntake},
	{"a parked certificate replaces the signature at replay", replayFile,
		`parked.Certificate != nil && p.signature == (signature.Proof{}) && len(parked.JWK) == 0`,
		`parked.Certificate != nil`, inIntake},
	{"a parked certificate is verified at the time of the replay", replayFile,
		`VerifyCertificate(chain[0],
			parked.Certificate.AcceptedAt)`, `VerifyCertificate(chain[0],
			r.pipeline.opts.Now())`, inIntake},
	{"a repeated mTLS delivery is parked again", parkingFile, `		at = p.SentAt
`, `		at = p.ParkedAt
`, inWebhook},
	{"the last certificate is written for every webhook", lastCertFile,
		`; ok && now.Sub(at) < certificateEvery {`, `; ok && now.Sub(at) < 0 {`, inKeys},
	{"TrustDaysLeft ignores the client certificate", lastCertFile,
		`last != nil && last.NotAfter.Before(expires)`, `last != nil && last.NotAfter.Equal(expires)`, inKeys},

	// The order of recording, publishing and marking.
	{"an event is marked before it is published", publishFile,
		`	failures := p.bus.Publish(publishing, events)
`, `	p.ledger.MarkPublished(ctx, entries)
	failures := p.bus.Publish(publishing, events)
`, inHistories},
	{"an event is published before it is recorded", pipelineFile,
		`	rec := p.record(ctx, delivery, start, inv)
`, `	for _, raw := range delivery.Events {
		p.bus.Publish(ctx, []bus.Event{busEvent(ledger.NewEntry(raw, delivery.DeliveryID, start))})
	}
	rec := p.record(ctx, delivery, start, inv)
`, inHistories},
	{"a webhook is answered before its events are recorded", recordFile,
		`		rec.err = unrecorded(ctx, rec.err)
`, `		rec.err, rec.duplicates = nil, rec.duplicates+rec.unrecorded
`, inHistories},
	{"a failed write of the ledger counts as a duplicate", recordFile,
		`			rec.unrecorded++
			rec.err = r.Err
`, `			rec.duplicates++
`, inHistories},
	{"duplicates are published", recordFile,
		`		case r.Outcome == ledger.Duplicate:
			rec.eventIDs.add(Duplicate, id)
`, `		case r.Outcome == ledger.Duplicate:
			rec.entries = append(rec.entries, events[i].entry)
`, inHistories},
	{"an event is marked although publishing failed", publishFile,
		`		if failures[i] == nil {
			published = append(published, e)
		} else {`, `		published = append(published, e)
		if failures[i] != nil {`, inHistories},
	{"events are published after the deadline", ledgerRecordFile,
		`			results[i].err = err
		}`, `			results[i].err = nil
		}`, inHistories},
	{"an event that occurs twice in a delivery is recorded twice", recordFile,
		`		contents[c] = true
`, ``, inHistories},
	{"the second of two contents in a delivery is published", recordFile,
		`		ids[e.entry.EventID] = true
`, ``, inIntake},
	{"the second of two contents in a delivery is recorded", recordFile,
		`			conflicts = append(conflicts, e)
			continue
`, `			conflicts = append(conflicts, e)
`, inIntake},
	{"an event is due as soon as it is recorded", recordFile,
		`due: inv.heldUntil}`, `due: at}`, inHistories},
	{"an event is due at the deadline, without the grace period", recordFile,
		`due: inv.heldUntil}`, `due: inv.heldUntil.Add(-p.opts.Grace)}`, inHistories},
	{"a conflict is not parked", pipelineFile,
		`	if len(rec.conflicts) > 0 {`, `	if len(rec.conflicts) > 1 {`, inHistories},
	{"a conflict that could not be parked is answered 2xx", pipelineFile,
		`				err = parkErr
`, `				_ = parkErr
`, inHistories},
	{"the claim is stored after the record", recordFile,
		`			w.results[i].Err = err
			return
`, `			entry = w.events[i].entry
`, inHistories},
	{"a webhook is authenticated after it is recorded", receiveFile,
		`	if err != nil {
		known.Key.Wait()
`, `	if err != nil {
		r.pipeline.process(ctx, d.Payload, proof, inv)
		known.Key.Wait()
`, inHistories},
	{"a wrong signature is accepted", receiveFile,
		`	if err != nil || again.Key == nil {
`, `	if err == nil && again.Key == nil {
		return found, nil
	}
	if err != nil || again.Key == nil {
`, inHistories},
	{"the timestamp is not checked", receiveFile,
		`	if err := s.Window.Check(proof.Timestamp, now); err != nil {
		return proof, key, "", err
	}
`, ``, inHistories},

	// Redrive.
	{"a lease ends when its run starts", redriveFile,
		`Lease(ctx, pending, r.holder, r.heldUntil)`, `Lease(ctx, pending, r.holder, r.start)`, inHistories},
	{"redrive takes events that are not due", redriveFile,
		`Due(ctx, shard, r.start, cursors[shard], pageSize)`,
		`Due(ctx, shard, r.start.Add(time.Hour), cursors[shard], pageSize)`, inHistories},
	{"redrive queries only half of the shards", redriveFile,
		`make([]int, ledger.Shards) //`, `make([]int, ledger.Shards/2) //`, inHistories},
	{"an event is marked as parked although parking failed", parkFile,
		`	}); err != nil {
		return err
	}
	return p.ledger.MarkParked`, `	}); err != nil && p.ledger == nil {
		return err
	}
	return p.ledger.MarkParked`, inHistories},
	{"redrive drops events that it cannot publish", redriveFile,
		`		case f.Attempts >= r.maxAttempts || f.unpublishable():`, `		case f.Attempts >= r.maxAttempts:
			err = r.pipeline.ledger.MarkParked(ctx, []ledger.Entry{f.Entry})[0]
		case f.unpublishable():`, inHistories},

	// The ledger.
	{"an event is recorded without a condition", ledgerRecordFile,
		`OR (attribute_not_exists(#shard) AND #expiresAt <= :now)"`,
		`OR attribute_exists(#eventId) OR attribute_exists(#shard) OR #expiresAt <= :now"`,
		inHistories},
	{"a published event can be recorded again", ledgerRecordFile,
		`OR (attribute_not_exists(#shard) AND #expiresAt <= :now)"`,
		`OR attribute_not_exists(#shard) OR #expiresAt <= :now"`, inHistories},
	{"the de-duplication window ends only when TTL deletes the item", ledgerRecordFile,
		`		"attribute_not_exists(#eventId) OR (attribute_not_exists(#shard) AND #expiresAt <= :now)",
		map[string]string{"#eventId": names.LedgerKey, "#shard": names.LedgerPendingShard,
			"#expiresAt": names.LedgerTTL},
		map[string]types.AttributeValue{":now": number(l.now().Unix())})`,
		`		"attribute_not_exists(#eventId)", map[string]string{"#eventId": names.LedgerKey}, nil)`, inHistories},
	{"pending items expire", itemFile,
		`		attrAttempts: number(0),
`, `		attrAttempts: number(0), names.LedgerTTL: number(e.RecordedAt.Unix()),
`, inLedger},
	{"an event with the same id and other content counts as a duplicate", ledgerRecordFile,
		`	case old.digest() != e.Digest:
		return Conflict
	case bytes.Equal`, `	case bytes.Equal`, inHistories},
	{"white space changes the digest", ledgerFile,
		`		case ' ', '\t', '\n', '\r':
			h.Write(raw[start:i])
			start = i + 1
`, ``, inHistories},
	{"an error of recording is ignored", ledgerRecordFile,
		`		return 0, fmt.Errorf("ledger: record %s: %w", e.EventID, err)`,
		`		return Duplicate, nil`, inHistories},
	{"the retry of an own write counts as a duplicate", ledgerRecordFile,
		`	case bytes.Equal(old.Holder, holder[:]):`,
		`	case bytes.Equal(old.Holder, holder[:]) && len(old.Holder) == 0:`, inLedger},
	{"the write of another holder counts as the own one", ledgerRecordFile,
		`	case bytes.Equal(old.Holder, holder[:]):`,
		`	case bytes.Equal(old.Holder, holder[:]) || len(old.Holder) == len(holder):`, inHistories},
	{"a published item stays in the index", markFile,
		`REMOVE #event, #claimed, #shard, #due, #holder, #attempts"`,
		`REMOVE #event, #claimed, #holder, #attempts"`, inHistories},
	{"a published item keeps the event", markFile,
		`REMOVE #event, #claimed, #shard, #due, #holder, #attempts"`,
		`REMOVE #claimed, #shard, #due, #holder, #attempts"`, inHistories},
	{"an error of marking is ignored", markFile,
		`	if err := unlessConditional(err); err != nil {`,
		`	if err := unlessConditional(err); err != nil && false {`, []string{"./shared/intake"}},
	{"an item is leased without a condition", pendingFile,
		`		ConditionExpression: aws.String("#due = :seen"),`,
		`		ConditionExpression: aws.String("#due = :seen OR attribute_exists(#due)"),`, inHistories},
	{"an item that is not pending can be leased", pendingFile,
		`		ConditionExpression: aws.String("#due = :seen"),`,
		`		ConditionExpression: aws.String("#due = :seen OR attribute_not_exists(#due)"),`, inHistories},
	{"the retry of an own lease fails", pendingFile,
		`holder[:]) || found.Due != milliseconds(until.UnixMilli()) {`, `holder[:]) || found.Due != 0 {`, inLedger},
	{"the lease of another holder counts as the own one", pendingFile,
		`!bytes.Equal(found.Holder, holder[:]) ||`, `!bytes.Equal(found.Holder, found.Holder) ||`, inHistories},
	// Batches.
	{"the error of a statement is ignored", batchFile,
		`			if r.Error == nil {`, `			if r.Error == nil || r.Error != nil {`, inHistories},
	{"a batch whose answer is lost counts as done", batchFile,
		`				results[i] = executed{err: err}
`, `				results[i] = executed{}
`, inHistories},
	{"the wrong statements are tried again", batchFile,
		`				statements[left], at[left] = statements[n], i
`, `				at[left] = i
`, inHistories},
	{"a throttled statement is not tried again", batchFile,
		`isStatementError(results[i].err, transient...)`,
		`isStatementError(results[i].err, transient[1:]...)`, inLedger},
	{"what can't succeed is tried again", batchFile,
		`			if isStatementError(results[i].err, transient...) {`, `			if r.Error != nil {`, inLedger},
	{"statements are tried again without a pause", batchFile,
		`		_ = smithytime.SleepWithContext(ctx, l.pause(pause))
`, `		_ = smithytime.SleepWithContext(ctx, 0)
`, inLedger},
	{"26 statements in a batch", batchFile,
		`const MaxBatch = 25`, `const MaxBatch = 26`, inLedger},
	{"the bytes of a batch are not limited", batchFile,
		`bytes+size(i) > maxBatchBytes`, `bytes+size(i) > 100*maxBatchBytes`, inLedger},
	{"what the events of a batch left behind is never due", ledgerRecordFile,
		`l.insert(newItem(e, holder, due))`, `l.insert(newItem(e, holder, due.AddDate(1, 0, 0)))`, inHistories},
	{"each batch has a holder of its own", ledgerRecordFile,
		`l.insert(newItem(e, holder, due))`, `l.insert(newItem(e, NewHolder(), due))`, inLedger},
	{"what INSERT finds is a duplicate", ledgerRecordFile,
		`			results[i].Outcome = outcomeOf(old, entries[i], holder)
`, `			results[i].Outcome = Duplicate
`, inHistories},
	{"what INSERT finds is a duplicate after the window", ledgerRecordFile,
		`return !l.current(i) })`, `return !l.current(i) && false })`, inHistories},
	{"what a batch can't decide counts as recorded", ledgerRecordFile,
		`			undecided = append(undecided, i)
`, `			results[i].Outcome = Recorded
`, inHistories},
	{"a failed mark of a batch is ignored", markFile,
		`		case r.err != nil && r.met():
`, `		case r.err != nil && r.met() && len(results) == 1:
`, inLedger},
	{"what a batch can't mark stays pending", markFile,
		`		case r.undecided():
			results[i] = l.markOne(ctx, entries[i], at)
`, `		case r.undecided():
`, inLedger},
	{"a batch leaves the index entry behind", markFile,
		`" REMOVE "` + "`" + ` + names.LedgerPendingShard +`, `" REMOVE "` + "`" + ` + attrClaimed +`, inHistories},
	{"a batch marks what is not pending", markFile,
		`quote(names.LedgerPendingShard) + " IS NOT MISSING"`, `quote(names.LedgerKey) + " IS NOT MISSING"`, inLedger},
	{"the lease of a batch without its item is dropped", pendingFile,
		`r.undecided() || r.err == nil && r.item == nil:`, `r.undecided():`, inLedger},
	{"the holder does not recognize its lease of a batch", pendingFile,
		`			results[i] = ownLease(pending[i], r.item, holder, until)
`, `			results[i] = Leased{}
`, inLedger},
	{"an item that another invocation holds is postponed", pendingFile,
		`aws.String("#holder = :holder AND attribute_exists(#shard)")`,
		`aws.String("attribute_exists(#shard) OR #holder = :holder")`, inLedger},
	{"an item is marked without a condition", markFile,
		`aws.String("attribute_exists(#shard) AND #digest = :digest")`,
		`aws.String("attribute_exists(#shard) OR #digest = :digest OR attribute_not_exists(#shard)")`, inLedger},

	// What AWS rejects before the function.
	{"SafePayloadBytes is larger than what always fits", settingsFile,
		`const SafePayloadBytes = (invocationBytes - envelopeBytes) / 2`,
		`const SafePayloadBytes = (invocationBytes - envelopeBytes) * 3 / 4`, inWebhook},
	{"the subscription sheet states a payload size that does not always fit", "infra/payhook/subscription.go",
		`min(conf.Webhook.MaxPayloadBytes, settings.SafePayloadBytes)`,
		`max(conf.Webhook.MaxPayloadBytes, settings.SafePayloadBytes)`, inInfra},
	{"a payload that the function rejects counts as rejected by AWS", handlerFile,
		`count(answer.Status >= 400 &&`, `count(answer.Status > 400 &&`, inWebhook},

	// Timestamps.
	{"an hour of one digit is accepted", rfc3339File,
		`	hour := p.number(2, 0, 23)
`, `	digits := 2
	if len(p.text) > 1 && p.text[1] == ':' {
		digits = 1
	}
	hour := p.number(digits, 0, 23)
`, inRFC3339},
	{"an offset of 24 hours is accepted", rfc3339File,
		`3600 * p.number(2, 0, 23)`, `3600 * p.number(2, 0, 24)`, inRFC3339},
	{"an offset of 60 minutes is accepted", rfc3339File,
		`60 * p.number(2, 0, 59)`, `60 * p.number(2, 0, 60)`, inRFC3339},
	{"a comma before the fraction is accepted", rfc3339File,
		`p.text[0] != '.'`, `p.text[0] != '.' && p.text[0] != ','`, inRFC3339},
	{"a leap second is accepted at any time", rfc3339File,
		`second == 60 && (`, `second > 60 && (`, inRFC3339},
	{"a leap second is rejected", rfc3339File,
		`p.number(2, 0, 60)`, `p.number(2, 0, 59)`, inRFC3339},
	{"a consumer parses times differently", "shared/payment/payment.go",
		`json.Unmarshal(raw, &event, strictTimes())`, `json.Unmarshal(raw, &event)`, inPayment},

	// Settings.
	{"the de-duplication window may end before the timestamp is too old", conflictFile,
		`least := 2*w.Window.Tolerance + w.Timeout + time.Second`,
		`least := w.Window.Tolerance + w.Timeout + time.Second`, inSettings},
	{"a function rejects settings that only the deployment checks", settingsFile,
		`	w.KeysTable = r.resource`, `	r.contradictions(Deployment{Webhook: w})
	w.KeysTable = r.resource`, inSettings},
	{"any address counts as loopback", settingsFile,
		`return ip.IsLoopback()`, `return ip.IsLoopback() || ip.IsPrivate()`, inSettings},
	{"any http URL is accepted", settingsFile,
		`!(u.Scheme == "http" && isLoopback(u.Hostname()))`,
		`!(u.Scheme == "http" || isLoopback(u.Hostname()))`, inSettings},
	{"a duration with a fraction of a second is accepted", settingsFile,
		`	if d%time.Second != 0 {`, `	if d%time.Second != 0 && d < 0 {`, inSettings},
	{"the entry limit of the China Regions is that of the other Regions", settingsFile,
		`strings.HasPrefix(r.getenv("AWS_REGION"), "cn-")`, `r.getenv("AWS_REGION") == "cn"`, inSettings},
	{"an event larger than an item can hold is accepted", tablesFile,
		`400<<10 - 1<<10`, `400<<10 - 1<<6`, inLedger},

	// The bus.
	{"an entry as large as the limit is sent", busFile,
		`b.Size(e) < b.opts.MaxBytes`, `b.Size(e) <= b.opts.MaxBytes`, inBus},
	{"a batch as large as the limit is sent", busFile,
		`bytes+size >= b.opts.MaxBytes`, `bytes+size > b.opts.MaxBytes`, inBus},
	{"a rejected event fails its whole batch", busFile,
		`if len(batch) > 1 && ctx.Err() == nil && faultOf(err) == ofEntry {`, `if false {`, inHistories},
	{"only half of a rejected batch is sent again", busFile,
		`			b.publish(ctx, events, batch[half:], results)
`, ``, inBus},
	{"an error that the SDK does not model counts as a service fault", busFile,
		`		if status/100 != 4 || `, `		if true || `, inBus},
	{"a denied request is split", busFile,
		`ok && slices.Contains(callerErrors, api.ErrorCode())`,
		`ok && slices.Contains(callerErrors, "")`, inBus},
	{"a time outside the SDK's range is sent changed", busFile,
		`t.Equal(time.Unix(0, t.UnixNano()))`, `!t.IsZero()`, inBus},
	{"an event that EventBridge rejects is sent", busFile,
		`results[i] = Check(e.Detail)`, `_, _ = i, e`, inBus},
	{"integers outside 64 bits are sent", checkFile,
		`case kind == '0' && isInteger(token.String()):`, `case kind == '0' && false:`, inBus},
	{"decimals count as integers", checkFile,
		`if c := number[i]; c == '.' || c == 'e'`, `if c := number[i]; c == 'e'`, inBus},
	{"1001 levels of nesting are sent", checkFile,
		`case dec.StackDepth() > MaxDepth:`, `case dec.StackDepth() > MaxDepth+1:`, inBus},
	{"a member name of the payload is logged in the cause", decodeFile,
		`			name, at = "*", nil
`, `			at = nil
`, inPayment},
	{"redrive retries an event that EventBridge rejects", redriveFile,
		`f.Attempts >= r.maxAttempts || f.unpublishable():`, `f.Attempts >= r.maxAttempts:`, inIntake},
	{"the receiver does not park a rejected event", pipelineFile,
		`	unpublishable, cause := p.parkUnpublishable(ctx, pub.failed)
`, `	unpublishable, cause := map[string]bool{}, error(nil)
`, inWebhook},
	{"an event that could not be parked counts as parked", parkFile,
		`		if err == nil {
			parked[`, `		if err != context.Canceled {
			parked[`, inWebhook},
	{"failed entries are ignored", busFile,
		`	entry := out.Entries[i]
	if entry.ErrorCode == nil && aws.ToString(entry.EventId) != "" {
		return nil, false
	}
`, `	entry := out.Entries[i]
	if true {
		return nil, false
	}
`, inHistories},
	{"the error of one entry applies to all entries", busFile,
		`		out, err := b.client.PutEvents(ctx, &eventbridge.PutEventsInput{Entries: entries})
`,
		`		out, err := b.client.PutEvents(ctx, &eventbridge.PutEventsInput{Entries: entries})
		if err == nil && out.FailedEntryCount > 0 {
			err = &EntryError{Code: "InternalFailure"}
		}
`, inHistories},
	{"a missing answer counts as success", busFile,
		`	if err != nil {
		return err, faultOf(err) == ofService
	}
`, `	if err != nil {
		return nil, false
	}
`, inHistories},
	{"the wrong entries are retried", busFile,
		`				entries[again], batch[again] = entries[i], position
`, `				entries[again], batch[again] = entries[again], position
`, inHistories},
	{"a batch has eleven entries", busFile,
		`const MaxEntries = 10`, `const MaxEntries = 11`, inBus},
	{"the bytes of a batch are not counted", busFile,
		`		bytes += size
`, `		_ = size
`, inBus},
	{"the published bytes differ from the received ones", busFile,
		`aws.String(string(e.Detail)),`, `aws.String(" " + string(e.Detail)),`, inHistories},

	{"postponed items do not count as pending", redriveFile,
		`	r.measureWaiting(ctx)
`, ``, inIntake},
	{"items held by receivers hide postponed items", pendingFile,
		`"#shard = :shard AND #due > :at", false, nil, limit)`,
		`"#shard = :shard AND #due > :at", true, nil, limit)`, inIntake},

	// Large deliveries.
	{"an event that the ledger has is written again", ledgerRecordFile,
		`		if !slices.ContainsFunc(attempts, executed.exists) {`, `		if len(attempts) > 0 {`, inIntake},
	{"a new delivery is read from the ledger first", ledgerRecordFile,
		`		if !slices.ContainsFunc(attempts, executed.exists) {`, `		if len(attempts) == 0 {`, inIntake},
	{"nothing is read while slow writes continue", ledgerRecordFile,
		`timeLeft(ctx)/slowAfter`, `timeLeft(ctx)`, inIntake},
	{"a known large event is uploaded again", recordFile,
		`w.recordLarge(ctx, w.skipKnown(ctx, large))`, `w.recordLarge(ctx, large)`, inIntake},
	{"a large event with white space is uploaded with the ledger's digest", recordFile,
		`	if !e.entry.Compact {
`, `	if false {
`, inIntake},
	{"an event whose window has passed is not recorded again", recordFile,
		`		case !known.Current:`, `		case known == (ledger.Known{}):`, inIntake},
	{"a conflict found by reading counts as a duplicate", recordFile,
		`			w.results[i].Outcome = ledger.Conflict
`, `			w.results[i].Outcome = ledger.Duplicate
`, inIntake},
	{"reading the ledger may take the whole invocation", recordFile,
		`deadline.Sub(p.opts.Now())/2)`, `deadline.Sub(p.opts.Now()))`, inIntake},
	{"unprocessed keys of BatchGetItem count as not recorded", knownFile,
		`		if len(rest) == 0 {
			return found, nil
		}
`, `		if len(rest) >= 0 {
			return found, nil
		}
`, inLedger},
	{"redrive does not report an error of parking", redriveFile,
		`			r.result.Parked++
		}
		r.note(err)
`, `			r.result.Parked++
		}
`, inIntake},

	// Replay.
	{"replay does not verify the signature", replayFile,
		`		if err := signature.Verify(key, parked.Payload, p.signature); err != nil {
			return p, known, err
		}
`, ``, inIntake},
	{"replay accepts any RSA exponent", replayFile,
		`keys.ParseJWK(parked.JWK, parked.KeyID, r.exponents)`,
		`keys.ParseJWK(parked.JWK, parked.KeyID, []int{3, 65537})`, inIntake},
	{"the replay of a conflict includes the other events", replayFile,
		`	case parked.Reason == parking.Conflict:
`, `	case parked.Reason == parking.Conflict && version != ParkedVersion:
`, inIntake},
	{"a conflict is replayed without a version", replayFile,
		`version != FirstVersion && version != ParkedVersion:`,
		`version != FirstVersion && version != ParkedVersion && version != NoVersion:`, inIntake},
	{"--version first is accepted although the first version was not published", replayFile,
		`		case first.Parked:`, `		case first.Parked && first.Pending:`, inIntake},
	{"one of several parked contents is replayed", replayFile,
		`		if id := e.entry.EventID; ids[id] {`,
		`		if id := e.entry.EventID; ids[id] && len(events) > 2 {`, inIntake},
	{"a changed event is replayed", replayFile,
		`!parked.Claimed && entry.Digest != signed {`, `parked.Claimed && entry.Digest == signed {`, inIntake},
	{"a replayed event keeps the time of its first recording", replayFile,
		`ledger.NewEntry(raw, parked.DeliveryID, now)`,
		`ledger.NewEntry(raw, parked.DeliveryID, parked.RecordedAt)`, inIntake},
	{"a replay continues after its deadline", replayFile,
		`r.summary(ctx, write(ctx,`, `r.summary(ctx, write(context.WithoutCancel(ctx),`, inIntake},
	{"a conflict with a replayed event counts as a duplicate", ledgerRecordFile,
		`	case old.digest() != e.Digest:
		return Conflict, nil
	}
`, `	}
`, inIntake},
	{"--version parked overwrites a pending event", ledgerRecordFile,
		`(attribute_not_exists(#shard) AND (#digest <> :digest OR attribute_exists(#parkedAt)))`,
		`(attribute_not_exists(#shard) OR (#digest <> :digest OR attribute_exists(#parkedAt)))`, inIntake},
	{"the window starts when the event is recorded, not when it is published", markFile,
		`	begin := at
`, `	begin := e.RecordedAt
`, inLedger},
	{"a rejected replay is marked as replayed", redriveHandlerFile,
		`			if r.Outcome == intake.Accepted || r.Outcome == intake.Conflict && r.Parked != "" {`,
		`			if r.Outcome != intake.KeyRefused {`, inRedrive},
	{"a conflict is marked as replayed", redriveHandlerFile,
		`r.Outcome == intake.Conflict && r.Parked != "" {`, `r.Outcome == intake.Conflict {`, inRedrive},
	{"a parked object is settled without a reason", redriveHandlerFile,
		`	if strings.TrimSpace(e.Reason) == "" {`,
		`	if strings.TrimSpace(e.Reason) == "" && len(e.Settle) == 0 {`, inRedrive},
	{"the outcome line of a large delivery is long", "shared/intake/fate.go",
		`const maxEventIDs = 10`, `const maxEventIDs = 1000`, []string{"./functions/webhook"}},
	{"an event that is left to redrive is logged as published", "shared/intake/fate.go",
		`		if !missing[e.EventID] {`, `		if len(e.EventID) > 0 {`, []string{"./functions/webhook"}},
	{"late log events are not shown", tailFile,
		`newest.Add(-overlap)`, `newest`, inLogs},
	{"an empty page ends the reading of a log", tailFile,
		`if aws.ToString(page.NextToken) == "" {`, `if aws.ToString(page.NextToken) == "" || len(page.Events) == 0 {`,
		inLogs},
	{"log events that were read before an error are lost", tailFile,
		`			return entries, fmt.Errorf(`, `			return nil, fmt.Errorf(`, inLogs},
	{"a log that could not be read is not read again", tailFile,
		`	if !answered || !known {
		return false`, `	if !answered || !known {
		return true`, inLogs},
	{"what was not measured is healthy", "infra/cmd/payhook/status/status.go",
		`h.Healthy && check.State == ok`, `h.Healthy && check.State != attention`, inStatus},
	{"an answer of 503 needs no attention", "infra/cmd/payhook/status/metrics.go",
		`failed > 0 || sums["unavailable"] > 0`, `failed > 0`, inStatus},

	// The console.
	{"a name that resolves to 127.0.0.1 reaches the console", "infra/cmd/payhook/console/server.go",
		`		if !s.serves(r.Host) {`, `		if false {`, inConsole},
	{"another site reads the stream of the console", "infra/cmd/payhook/console/server.go",
		`site == "cross-site" || site == "same-site"`, `site == "same-site" && false`, inConsole},
	{"an origin without fetch metadata uses the console", "infra/cmd/payhook/console/server.go",
		`err := crossOrigin.Check(r); err != nil`, `err := crossOrigin.Check(r); err != nil && false`, inConsole},
	{"the console works without its token", "infra/cmd/payhook/console/server.go",
		`[]byte(s.token)) != 1 {`, `[]byte(s.token)) > 1 {`, inConsole},
	{"a form has effects in the console", "infra/cmd/payhook/console/server.go",
		`err != nil || kind != "application/json"`, `err != nil && kind != "application/json"`, inConsole},
	{"the name of what is parked is a flag", "infra/cmd/payhook/console/actions.go",
		`append(args, "--", asked.Name)`, `append(args, asked.Name)`, inConsole},
	{"what the console stopped stays stopped", "infra/cmd/payhook/console/actions.go",
		`		if !a.isStopped(service) {`, `		if true {`, inConsole},
	{"the console shows payment data", "infra/cmd/payhook/console/feed.go",
		`	e.Event = nil`, `	_ = e.Event`, inConsole},
	{"a page that connects again misses a message", "infra/cmd/payhook/console/feed.go",
		`min(max(number+1-first, 0), len(f.messages))`, `min(max(number+2-first, 0), len(f.messages))`, inConsole},
	{"a page gets messages after a number of another run", "infra/cmd/payhook/console/feed.go",
		`run != f.run || err != nil`, `run == "" || err != nil`, inConsole},

	// What make run prints.
	{"a cell that does not fit is cut", "infra/local/report.go",
		`			lines = append(lines, string(word[:width]))`, `			lines = append(lines, "")`, inLocal},
	{"a line is wider than the terminal", "infra/local/report.go",
		`for ; total > width; total-- {`, `for ; total > width+9; total-- {`, inLocal},
	{"a wrong result is not shown again", "infra/local/report.go",
		`			if result.wrong() {`, `			if false {`, inLocal},
	{"what is settled is counted as open", parkingFile,
		`		if _, ok := decided[name]; !ok {`,
		`		if _, ok := decided[name]; !ok || decided[name] == Settled {`, inRedrive},
	{"what is parked is counted once only", redriveHandlerFile,
		`	if r.Left || h.time().Sub(h.parkedCounted) < countParkedEvery {`,
		`	if r.Left || !h.parkedCounted.IsZero() {`, inRedrive},
	{"a temporary rule that somebody uses is removed", temporaryFile,
		`tags[programTag] != program || !dead && !expired {`,
		`tags[programTag] != program || !dead && !expired && name == "" {`, inListen},
	{"a rule of somebody else is removed", temporaryFile,
		`tags[programTag] != program || !dead && !expired {`, `!dead && !expired {`, inListen},
	{"a rule is left behind if its target fails", temporaryFile,
		`		if err != nil {
			err = errors.Join(err, t.removeAnyway`, `		if err != nil && l.url == "" {
			err = errors.Join(err, t.removeAnyway`, inListen},
	{"anybody can send to a temporary queue", temporaryFile,
		`{"Effect": "Deny", "Principal": "*", "Action": "sqs:SendMessage",`,
		`{"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage",`, inListen},
	{"what payhook listen could not remove is left behind without the reason", listenFile,
		`(%v): the next start of payhook listen removes them",
				l.name, err)`, `: the next start of payhook listen removes them",
				l.name)`, inListen},
	{"an event that is delivered twice is forwarded twice", listenFile,
		`	if s.ids[id] {`, `	if s.ids[id] && len(id) > 1000 {`, inListen},
	{"a name that is not of this computer is forwarded to", forwardFile,
		`err != nil || !at.Addr().IsLoopback() {`,
		`err != nil || !at.Addr().IsLoopback() && at.Port() == 0 {`, inListen},
	{"a redirect is followed with the event", forwardFile,
		`return http.ErrUseLastResponse }`, `return nil }`, inListen},
	{"replay --all includes conflicts", replayCommandFile,
		`			if l.Reason == string(parking.Conflict) {`,
		`			if l.Reason == string(parking.Conflict) && len(chosen) > 1000 {`, inOperate},
	{"a settled object is listed as open", parkedCommandFile,
		`State: cmp.Or(states[name], parking.Open)}`,
		`State: cmp.Or(parking.State(strings.TrimPrefix(string(states[name]), "settled")), parking.Open)}`, inOperate},

	// Parking and claim check.
	{"an object is parked without its index", parkingFile,
		`	if err := g.Wait(); err != nil {
		return "", false, err
	}
`, `	_ = g.Wait()
`, inParking},
	{"a settled object stays open", parkingFile,
		`range []State{Settled, Replayed} {`, `range []State{Replayed} {`, inHistories},
	{"a settled object is marked as replayed", parkingFile,
		`s.note(ctx, Settled, name, n)`, `s.note(ctx, Replayed, name, n)`, inHistories},
	{"parking the same content again overwrites the object", parkingFile,
		`		IfNoneMatch:    aws.String("*"),
`, ``, inParking},
	{"every failed conditional write counts as a repeat", parkingFile,
		`		return !retried.Load(), nil`, `		return true, nil`, inParking},
	{"a concurrent conditional write is not retried", parkingFile,
		`retry.AddWithErrorCodes(o.Retryer, "ConditionalRequestConflict")`,
		`retry.AddWithErrorCodes(o.Retryer, "ConditionalRequest")`, inParking},
	{"the name of a parked object ignores its event ids", parkingFile,
		`		add([]byte(id))
`, `		_ = id
`, inParking},
	{"a listing starts again after 1000 objects", parkingFile,
		`		in.ContinuationToken = out.NextContinuationToken
`, ``, inParking},
	{"a repeated webhook is counted as parked again", handlerFile,
		`count(r.Parked != "" && !r.ParkedBefore)`, `count(r.Parked != "")`, inWebhook},
	{"the digest of a claim check is not compared", claimFile,
		`len(event) != ref.Size || hex.EncodeToString(sum[:]) != ref.SHA256`,
		`len(event) != ref.Size || len(sum) != len(ref.SHA256)/2`, inClaimcheck},
	{"the signature of an upload does not cover the event", claimFile,
		`v4.SetPayloadHash(ctx, digest)`, `v4.SetPayloadHash(ctx, "")`, inClaimcheck},
	{"AccessDenied counts as a deleted object", claimFile,
		`return nil, fmt.Errorf("%w: %w", ErrDenied, err)`, `return nil, ErrGone`, inClaimcheck},

	// Permissions of the functions.
	{"the redrive function may not record replayed events", "infra/payhook/redrive.go",
		`[]string{"dynamodb:BatchGetItem", "dynamodb:PutItem", "dynamodb:UpdateItem",`,
		`[]string{"dynamodb:BatchGetItem", "dynamodb:UpdateItem",`, inPermissions},
	{"the redrive function may do more than it calls", "infra/payhook/redrive.go",
		`[]string{"events:PutEvents"}, bus.EventBusArn()`,
		`[]string{"events:PutEvents", "events:PutPermission"}, bus.EventBusArn()`, inPermissions},
	{"the redrive function may not list the bucket", "infra/payhook/buckets.go",
		`	f.allow([]string{"s3:ListBucket"}, b.parking.BucketArn())
`, ``, inPermissions},
	{"a permission names a secret's name instead of its ARN", "infra/payhook/token.go",
		`"secretsmanager:PutSecretValue"}, secret.AttrId())`,
		`"secretsmanager:PutSecretValue"}, secret.Ref())`, inPermissions},

	// Authentication.
	{"the first of repeated headers is used", carrierFile,
		`	case found > 1 || strings.Contains(value, ","):
		return "", ErrRepeated
`, `	case found > 1:
		return "", ErrRepeated
	case strings.Contains(value, ","):
		return value[:strings.Index(value, ",")], nil
`, inSignature},
	{"timestamps in the future are accepted", windowFile,
		`at.Before(now.Add(-w.Tolerance)) || at.After(now.Add(w.Tolerance))`,
		`at.Before(now.Add(-w.Tolerance))`, inSignature},
	{"non-canonical base64url is accepted", signatureFile,
		`	sig, _ := encoding.DecodeString(unpadded)
	if encoding.EncodeToString(sig) != unpadded {`,
		`	sig, err := base64.RawURLEncoding.DecodeString(unpadded)
	if err != nil {`, inSignature},
	{"the signature does not cover the key id", signatureFile,
		`	tail = append(tail, keyID...)
`, `	_ = keyID
`, inSignature},
	{"duplicate names are accepted", decodeFile,
		`	w.dec.Reset(&w.buffer)
	return w`,
		`	w.dec.Reset(&w.buffer, jsontext.AllowDuplicateNames(true))
	return w`, inPayment},
	{"member names are matched without case", decodeFile,
		`			return i, false
`, `			return i, true
`, inPayment},
	{"a delivery without events is accepted", decodeFile,
		`	if s.elements == eventSchema && elements == 0 {`,
		`	if s.elements == eventSchema && elements < 0 {`, inPayment},
	{"trailing data after the delivery is ignored", decodeFile,
		`; err != io.EOF {`, `; err != io.EOF && false {`, inPayment},

	// Keys.
	{"a key with another id is accepted", jwkFile,
		`case len(k.Kid) != len(id) || !strings.EqualFold(k.Kid, id):`,
		`case len(k.Kid) != len(id):`, inKeys},
	{"an answer that is not the JWK removes the key", keysFile,
		`errors.Is(err, ErrNotJWK)`, `errors.Is(err, ErrNotJWK) && false`, inKeys},
	{"a private key is accepted", jwkFile,
		`demand(k.D == nil && `, `demand(k.D != nil || `, inKeys},
	{"a key is used past its maximum age", keysFile,
		`	if e == nil || e.key == nil || c.opts.Now().Sub(e.fetchedAt) >= c.opts.MaxAge {`,
		`	if e == nil || e.key == nil {`, inKeys},
	{"a key in memory is used past its maximum age", keysFile,
		`		case age < c.opts.MaxAge && now.Before(e.retryAt):`,
		`		case age >= 0 && now.Before(e.retryAt):`, inKeys},
	{"a key in the table never becomes stale", keysFile,
		`	case l.fresh(cached, now):
		l.remember`,
		`	case !cached.withdrawn():
		l.remember`, inKeys},
	{"an unknown key id is not cached", keysFile,
		`	c.unknown[id] = unknown{at.Add(c.opts.UnknownTTL), withdrawn}
`, ``, inKeys},
	{"one 404 removes a key at once", keysFile,
		`	remove := cached == nil || asked.Sub(since) >= l.opts.UnknownGrace`,
		`	remove := true`, inKeys},
	{"one 404 removes a key at once, also from the table", keysTableFile,
		`"OR (fetchedAt <= :at AND unknownSince <= :oldest)"`,
		`"OR fetchedAt <= :at OR unknownSince <= :oldest"`, inKeys},
	{"a 404 counts although the table could not be read", keysFile,
		`	skipTable := l.tableFailed && cached != nil
`, `	skipTable := l.tableFailed
`, inKeys},
	{"the grace period of a key starts with the request", keysFile,
		`	since := l.opts.Now().Truncate(time.Millisecond)
`, `	since := asked
`, inKeys},
	{"each instance counts the grace period of a key by itself", keysItemFile,
		`, unknownSince: i.UnknownSince.time()`, ``, inKeys},
	{"each instance fetches a key in its grace period by itself", keysItemFile,
		`, unknownAt: i.UnknownAt.time()`, ``, inKeys},
	{"a late 404 overrides a newer answer", keysTableFile,
		`aws.String("attribute_exists(jwk) AND expiresAt > :now AND fetchedAt <= :at")`,
		`aws.String("attribute_exists(jwk) AND expiresAt > :now AND (fetchedAt <= :at OR fetchedAt > :at)")`, inKeys},
	{"a key in its grace period counts as fresh", keysFile,
		`	return !e.withdrawn() && now.Sub(e.fetchedAt) < c.opts.Freshness`,
		`	return now.Sub(e.fetchedAt) < c.opts.Freshness`, inKeys},
	{"a key in its grace period is not reported as withdrawn", keysFile,
		`Source: from, Withdrawn: e.withdrawn()}`, `Source: from}`, inKeys},
	{"a known source has no reserved budget", budgetFile,
		`l.knows(ctx) && l.take(ctx, &l.reserve)`, `l.knows(ctx) && false`, inKeys},
	{"an unknown source can use the reserved budget", budgetFile,
		`l.knows(ctx) && l.take(ctx, &l.reserve)`, `l.take(ctx, &l.reserve)`, inKeys},
	{"a source is written for every webhook", sourcesFile,
		`	return ok && c.opts.Now().Before(last.recordAt)
`, `	return ok && c.opts.Now().Before(last.recordAt) && last.recordAt.IsZero()
`, inKeys},
	{"each IPv6 address of a /64 counts as its own source", sourcesFile,
		`		bits = 64`, `		bits = 128`, inKeys},
	{"a malformed signature uses the budget", receiveFile,
		`keys.MinModulusBytes, keys.MaxModulusBytes); err != nil {`,
		`keys.MinModulusBytes, keys.MaxModulusBytes); err != nil && false {`, inIntake},
	{"the source of a forged webhook is recorded", receiveFile,
		`	proof, known, err := r.authenticate(ctx, d, inv.start)
`, `	if s := r.mechanisms.Signature; s != nil {
		s.Keys.RecordSource(ctx, d.SourceIP)
	}
	proof, known, err := r.authenticate(ctx, d, inv.start)
`, inIntake},
	{"the source of an authentic webhook is not recorded", receiveFile,
		`		wg.Go(func() { s.Keys.RecordSource(ctx, d.SourceIP) })
`, `		_ = s
`, inIntake},
	{"the answer does not wait for the key in the table", receiveFile,
		`	wg.Wait()
	known.Key.Wait()
`, `	wg.Wait()
`, inWebhook},
	{"a request that must not be repeated is", connectionsFile,
		`func (c *Connections) Once() *http.Client { return client(once{c}) }`,
		`func (c *Connections) Once() *http.Client { return client(c) }`, inAWSEnv},
	{"a conditional request is repeated", connectionsFile,
		`c.send(r, r.Header.Get("If-None-Match") == "")`, `c.send(r, true)`, inAWSEnv},
	{"a second dead connection is used", connectionsFile,
		`	c.transport.CloseIdleConnections()
`, ``, inAWSEnv},
	{"a fast answer of AWS is cut off", connectionsFile, `client(once{c})`, `client(c.transport)`, inAWSEnv},
	{"a setting of Go's runtime in the environment is ignored", runtimeFile,
		`	if getenv("GOGC") == "" {`, `	if getenv("GOGC") != "x" {`, inAWSEnv},
	{"a connection that was opened long ago is used", connectionsFile,
		`if c.now().Round(0).Sub(first.at) < freshFor {`, `if !first.at.IsZero() {`, inAWSEnv},
	{"what fails on a new connection is repeated", connectionsFile,
		`if err == nil || !old {`, `if err == nil || old && false {`, inAWSEnv},
	{"the budget is not enforced", keysTableFile,
		`aws.String("attribute_not_exists(misses) OR misses < :budget")`,
		`aws.String("attribute_not_exists(misses) OR misses < :budget OR misses >= :budget")`, inKeys},
	{"an older key replaces a newer one", keysTableFile,
		`aws.String("attribute_not_exists(fetchedAt) OR fetchedAt <= :at")`,
		`aws.String("attribute_not_exists(fetchedAt) OR fetchedAt <= :at OR fetchedAt > :at")`, inKeys},

	// The answer.
	{"there is no alarm for a withdrawn key", handlerFile,
		`		{Metric: keyWithdrawn, Value: count(r.Key.Withdrawn)},
`, ``, inWebhook},
	{"the payload shares memory that Lambda's library uses again", requestFile,
		`	text, _ := jsontext.AppendUnquote(make([]byte, 0, len(v)), v)
	return text`, `	text, _ := jsontext.AppendUnquote(v[:0:len(v)], v)
	return text`, inWebhook},
	{"a payload in base64 is limited by its text", requestFile,
		`	case len(payload) > maxBytes:`, `	case len(r.body) > maxBytes:`, inWebhook},
	{"a source address is read from a header", handlerFile,
		`	addr, err := netip.ParseAddr(r.sourceIP)`,
		`	addr, err := netip.ParseAddr(r.headers["x-forwarded-for"])`, inWebhook},
	{"an outage is answered 2xx", outcomeFile,
		`LedgerUnavailable, unavailable("Not every event could be recorded.", 5, names.NotStoredMetric)`,
		`LedgerUnavailable, Answer{Metric: "Accepted"}`, inWebhook},
	{"the answer to a forged delivery says what is wrong", outcomeFile,
		`SignatureMismatch, unauthentic}`,
		`SignatureMismatch, rejected(http.StatusForbidden, "The signature does not match.")}`, inWebhook},
	{"a failure without an outcome is answered 2xx", outcomeFile,
		`	return LedgerUnavailable
`, `	return Accepted
`, inIntake},
	{"a rejected webhook writes a metric with an empty name", outcomeFile,
		`Detail: detail, Metric: names.RejectedMetric, Level`, `Detail: detail, Level`, inWebhook},

	// Patterns for consumers.
	{"the pattern for high amounts uses numeric matching", "events/rules/high-value.json",
		`"amount": [{ "exists": true }]`, `"amount": [{ "numeric": [">=", 1000000] }]`, []string{"./events/rules"}},

	{"the schema accepts a claim check as an event", "events/schema/event.json", `"claimCheck"`, `"claim"`, inPayment},
	{"the schema accepts an eventId that is not a UUID", "events/schema/event.json",
		`[0-9A-Fa-f]{12}$`, `[0-9A-Fa-f]*`, inPayment},
	{"the schema in the registry differs from the published one", "events/schema/schema.go",
		`Reference: "claim-check.json"}[name]`, `Reference: "event.json"}[name]`, inPayment},

	{"schemaRegistry has no effect", "infra/payhook/schemas.go", `!conf.SchemaRegistry`, `false`,
		[]string{"./infra/payhook -run TestTheSchemaRegistry"}},

	{"the consumer's function processes an event twice", consumerFile,
		`attribute_not_exists(eventId)`, `attribute_not_exists(other)`, inConsumer},
	{"the consumer's function ignores the least high amount", consumerFile,
		`amount.Cmp(h.threshold) < 0`, `amount.Cmp(h.threshold) <= 0`, inConsumer},
	{"the consumer's function ignores an amount that it cannot compare", consumerFile,
		`ok && amount.Cmp(h.threshold) < 0 ||`, `!ok || amount.Cmp(h.threshold) < 0 ||`, inConsumer},
	{"the consumer's function loses an event that it cannot store", consumerFile,
		`	return "processed", err`, `	return "processed", nil`, inConsumer},
	{"the consumer's function does not resolve references", consumerFile,
		`claimcheck.Resolve(ctx, h.claims, e.Detail)`, `e.Detail, error(nil)`, inConsumer},

	// The access token.
	{"the refresh of the token does not adapt to its lifetime", refresherFile,
		`	return min(preferred, max(r.reserve(), lifetime-writeInterval))`, `	return preferred`, inToken},
	{"the refresh of the token leaves fewer than three runs", refresherFile,
		`max(r.reserve(), lifetime-writeInterval)`, `max(r.interval, lifetime-writeInterval)`, inToken},
	{"a token that could not be stored is requested again", refresherFile,
		`		r.rememberUnsaved(fresh)
`, ``, inToken},
	{"a new token is requested every minute", refresherFile,
		`		r.rememberRepeated(stored)
`, ``, inToken},
	{"there is no alarm for a full secret", refresherFile,
		`ok && failure.Code == limitExceeded`, `ok && failure.Code == ""`, inToken},
	{"tokens with a short remaining life raise the alarm token-quota", refresherFile,
		`		!stored.IssuedAt.IsZero() && fresh.IssuedAt.Sub(stored.IssuedAt)+lifetimeTolerance >= writeInterval {
`, `		false {
`, inToken},
	{"a cached token raises the alarm token-life", refresherFile,
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
