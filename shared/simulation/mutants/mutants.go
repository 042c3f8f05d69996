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

	intakeFile    = "shared/intake/intake.go"
	redriveFile   = "shared/intake/redrive.go"
	ledgerFile    = "shared/ledger/ledger.go"
	busFile       = "shared/bus/bus.go"
	checkFile     = "shared/bus/check.go"
	keysFile      = "shared/keys/keys.go"
	keysTableFile = "shared/keys/table.go"
	budgetFile    = "shared/keys/budget.go"
	sourcesFile   = "shared/keys/sources.go"
	jwkFile       = "shared/keys/jwk.go"
	parkingFile   = "shared/parking/parking.go"
	claimFile     = "shared/claimcheck/claimcheck.go"
	decodeFile    = "shared/payment/decode.go"
	signatureFile = "shared/signature/signature.go"
	carrierFile   = "shared/signature/carrier.go"
	windowFile    = "shared/signature/window.go"
	handlerFile   = "functions/webhook/handler.go"
	rfc3339File   = "shared/rfc3339/rfc3339.go"
	settingsFile  = "shared/settings/settings.go"
	tablesFile    = "shared/settings/settings.go"
	conflictFile  = "shared/settings/contradictions.go"
	refresherFile = "shared/token/refresher.go"
	tokenMainFile = "functions/token/main.go"
	replayFile    = "shared/intake/replay.go"
	restoreFile   = "shared/ledger/restore.go"
	knownFile     = "shared/ledger/known.go"
	roundsFile    = "shared/intake/rounds.go"

	clientCertFile     = "shared/clientcert/clientcert.go"
	certificateFile    = "functions/webhook/certificate.go"
	webhookMainFile    = "functions/webhook/main.go"
	proofFile          = "shared/intake/proof.go"
	lastCertFile       = "shared/keys/certificate.go"
	authenticationFile = "shared/settings/authentication.go"
	redriveHandlerFile = "functions/redrive/handler.go"
	replayCommandFile  = "infra/payhook/operate/replay.go"
	parkedCommandFile  = "infra/payhook/operate/parked.go"
	creationFile       = "infra/payhook/creation/creation.go"
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
	inOperate   = []string{"./infra/payhook/operate"}
	inCreation  = []string{"./infra/payhook/creation"}

	inClientCert = []string{"./shared/clientcert"}

	inClaimcheck  = []string{"./shared/claimcheck"}
	inPermissions = []string{"./infra -run TestEachFunctionMay"}
)

var mutants = []mutant{
	// A first deployment that failed.
	{"a stack that was created loses its protection from deletion", creationFile,
		`!slices.Contains(neverCreated, s.StackStatus)`, `slices.Contains(neverCreated, "")`, inCreation},
	{"a stack whose rollback failed as well stays protected", creationFile,
		`types.StackStatusRollbackComplete, types.StackStatusRollbackFailed}`, `types.StackStatusRollbackComplete}`, inCreation},
	{"a stack that is created meanwhile loses its protection", creationFile,
		`		StackName: s.StackId, EnableTerminationProtection: aws.Bool(false),`, `		StackName: &stack, EnableTerminationProtection: aws.Bool(false),`, inCreation},

	// Client certificates.
	{"redrive is deployed without the truststore", "infra/build.go",
		`slices.Contains(trusting, name)`, `slices.Contains(trusting[:1], name)`, []string{"./infra -run TestTheTruststoreIsIn"}},
	{"a certificate for servers is accepted", clientCertFile,
		`KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}`, `KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}`, inClientCert},
	{"a revoked certificate is accepted", clientCertFile,
		`if slices.Contains(v.policy.Revoked, SerialOf(c)) {`, `if slices.Contains(v.policy.Revoked, SerialOf(c)) && len(chain) == 0 {`, inClientCert},
	{"only the certificate itself can be revoked, not its CA", clientCertFile,
		`if slices.Contains(v.policy.Revoked, SerialOf(c)) {`, `if slices.Contains(v.policy.Revoked, SerialOf(chain[0])) {`, inClientCert},
	{"a certificate with another key than the pinned is accepted", clientCertFile,
		`len(pins) > 0 && !slices.Contains(pins, PinOf(c))`, `len(pins) > 1 && !slices.Contains(pins, PinOf(c))`, inClientCert},
	{"the case of a certificate's subject is ignored", clientCertFile,
		`slices.Contains(subjects, Subject(c))`, `slices.ContainsFunc(subjects, func(s string) bool { return strings.EqualFold(s, Subject(c)) })`, inClientCert},
	{"a part of a certificate's DNS name is enough", clientCertFile,
		`if slices.Contains(subjects, name) {`, `if slices.ContainsFunc(subjects, func(s string) bool { return strings.HasSuffix(name, s) }) {`, inClientCert},
	{"a chain of five CAs is accepted", clientCertFile, `cas > MaxChain {`, `cas > MaxChain+1 {`, inClientCert},
	{"a weak key of a certificate is accepted", clientCertFile, `if err := checkStrength(c); err != nil {
		return nil, reject(Weak, "it %s", err)`, `if err := checkStrength(c); err != nil && c.IsCA {
		return nil, reject(Weak, "it %s", err)`, inWebhook},
	{"fields that contradict the certificate are ignored", clientCertFile, `		err = contradiction(c, p)
`, ``, inClientCert},
	{"two certificates in PEM are accepted", clientCertFile,
		`strings.Count(text, "-----BEGIN") != 1 || strings.Count(text, "-----END") != 1`, `len(rest) > len(text)`, []string{"./functions/webhook"}},
	{"a certificate is accepted from another domain", certificateFile,
		`!strings.EqualFold(request.RequestContext.DomainName, o.domainName)`, `strings.EqualFold(request.RequestContext.DomainName, "")`, inWebhook},
	{"a certificate is accepted from another API", certificateFile, `request.RequestContext.APIID != o.apiID`, `request.RequestContext.APIID == ""`, inWebhook},
	{"a certificate is accepted in another payload format", certificateFile, `request.Version != "2.0"`, `request.Version == ""`, inWebhook},
	{"both means that the certificate is enough", webhookMainFile, `!s.UsesSignature(),`, `s.UsesMTLS(),`, inWebhook},
	{"both means that the signature is enough", authenticationFile, `return w.Authentication != BySignature }`, `return w.Authentication == ByMTLS }`, inSettings},
	{"a certificate makes up for the signature", intakeFile, `		if m.Alone {
`, `		if m.Alone || d.Headers["x-svc-signature"] != "" {
`, inHistories},
	{"a certificate of anybody is accepted", intakeFile, `		if err != nil {
			return p, err
		}
		p.chain, p.acceptedAt = chain, now
`, `		if err != nil && len(chain) == 0 {
			return p, err
		}
		p.chain, p.acceptedAt = chain, now
`, inHistories},
	{"the payload of a parked delivery by mTLS can be changed", proofFile,
		`!bytes.Equal(digest[:], p.Certificate.PayloadDigest)`, `bytes.Equal(digest[:], nil)`, inIntake},
	{"the certificate of a parked delivery makes up for its signature", proofFile,
		`if p.Signature == "" && p.KeyID == "" && p.Timestamp == "" && len(p.JWK) == 0 {`, `if p.Signature != "x" {`, inIntake},
	{"a parked certificate is verified as of now", proofFile,
		`VerifyCertificate(chain[0], p.Certificate.AcceptedAt)`, `VerifyCertificate(chain[0], r.opts.Now())`, inIntake},
	{"each repeat of a delivery by mTLS is parked anew", parkingFile, `		at = p.SentAt
`, `		at = p.ParkedAt
`, inWebhook},
	{"each webhook writes its certificate", lastCertFile, `; ok && now.Sub(at) < certificateEvery {`, `; ok && now.Sub(at) < 0 {`, inKeys},
	{"the days left ignore the client certificate", lastCertFile, `last != nil && last.NotAfter.Before(expires)`, `last != nil && last.NotAfter.Equal(expires)`, inKeys},

	// The order of the way.
	{"mark before publish", intakeFile,
		`	publishing, cancel := context.WithTimeout(ctx, patience*3/4)
	failures := p.bus.Publish(publishing, events)
	cancel()
	done.publishing = p.opts.Now().Sub(start)
`,
		`	for _, e := range entries {
		_ = p.ledger.MarkPublished(ctx, e)
	}
	publishing, cancel := context.WithTimeout(ctx, patience*3/4)
	failures := p.bus.Publish(publishing, events)
	cancel()
	done.publishing = p.opts.Now().Sub(start)
`, inHistories},
	{"publish before record", intakeFile,
		`	recorded, conflicts := r.record(ctx, delivery, deadline.Add(r.opts.Grace), result)
`,
		`	for _, event := range delivery.Events {
		r.bus.Publish(ctx, []bus.Event{{RawEvent: event, DeliveryID: delivery.DeliveryID}})
	}
	recorded, conflicts := r.record(ctx, delivery, deadline.Add(r.opts.Grace), result)
`, inHistories},
	{"answer before recording", intakeFile,
		`	case result.Unrecorded > 0 && ctx.Err() != nil:
		result.Outcome = OutOfTime
	case result.Unrecorded > 0:
		result.Outcome = LedgerUnavailable
`,
		`	case result.Unrecorded > 0:
		result.Outcome, result.Recorded = Accepted, len(entries)
`, inHistories},
	{"a failed record counts as a duplicate", intakeFile,
		`			result.Unrecorded++
			result.Err = failures[i]
`,
		`			result.Duplicates++
`, inHistories},
	{"publish duplicates too", intakeFile,
		`		case outcomes[i] == ledger.Duplicate:
			result.Duplicates++
`,
		`		case outcomes[i] == ledger.Duplicate:
			recorded = append(recorded, e)
`, inHistories},
	{"mark despite a failed publish", intakeFile,
		`		if failures[i] == nil {
			unmarked[i]`,
		`		if true {
			unmarked[i]`, inHistories},
	{"publish unchecked what came in out of time", intakeFile,
		`		if ctx.Err() != nil {
			failures[i] = errOutOfTime
			return
		}
`,
		`		if ctx.Err() != nil {
			return
		}
`, inHistories},
	{"an event twice in one delivery is recorded twice", intakeFile,
		`		contents[c] = true
`, ``, inHistories},
	{"of two contents in one delivery any may be published", intakeFile,
		`		ids[e.EventID] = true
`, ``, inIntake},
	{"of two contents in one delivery the second is recorded as well", intakeFile,
		`			conflicts = append(conflicts, e)
			continue
		}
		ids`, `			conflicts = append(conflicts, e)
		}
		ids`, inIntake},
	{"due without grace", intakeFile,
		`r.record(ctx, delivery, deadline.Add(r.opts.Grace), result)`,
		`r.record(ctx, delivery, start, result)`, inHistories},
	{"due at the deadline, whatever the clocks", intakeFile,
		`r.record(ctx, delivery, deadline.Add(r.opts.Grace), result)`,
		`r.record(ctx, delivery, deadline, result)`, inHistories},
	{"a conflict is not parked", intakeFile,
		`	if len(conflicts) > 0 {
		p := parking.Parked`,
		`	if len(conflicts) > 1 {
		p := parking.Parked`, inHistories},
	{"a conflict that could not be parked is answered like one that was", intakeFile,
		`	if err != nil && result.Unrecorded == 0 {
		result.Outcome, result.Err = ParkingFailed, err
	}
`, `	_ = err
`, inHistories},
	{"the claim is stored after the record", intakeFile,
		`			if e.Event.Bytes, failures[i] = r.opts.Claims.Put(ctx, e.Event); failures[i] != nil {
				return
			}
`,
		`			if claim, err := r.opts.Claims.Put(ctx, e.Event); err == nil {
				e.Event.Bytes = claim
			}
`, inHistories},
	{"authenticated after the fact", intakeFile,
		`	if err != nil {
		result.Outcome, result.Err = outcomeOf(err), err
		return result
	}

	r.take(ctx, d.Payload, proof, deadline, work, &result)
`,
		`	r.take(ctx, d.Payload, proof, deadline, work, &result)
	if err != nil {
		result.Outcome, result.Err = outcomeOf(err), err
	}
`, inHistories},
	{"a signature that does not verify is let through", intakeFile,
		`	if refetchErr != nil || again.Key == nil {
`,
		`	if refetchErr == nil && again.Key == nil {
		return nil
	}
	if refetchErr != nil || again.Key == nil {
`, inHistories},
	{"skip the timestamp's window", intakeFile,
		`	if err := r.window.Check(p.Timestamp, now); err != nil {
		return p, err
	}
`, ``, inHistories},

	// Redrive.
	{"a lease that ends with the run", redriveFile,
		`r.lease(ctx, part, holder, deadline.Add(r.opts.Grace), &result)`,
		`r.lease(ctx, part, holder, start, &result)`, inHistories},
	{"redrive takes what is not due", redriveFile,
		`r.ledger.Due(ctx, shard, at, cursors[shard], r.page)`,
		`r.ledger.Due(ctx, shard, at.Add(time.Hour), cursors[shard], r.page)`, inHistories},
	{"redrive looks at half of the shards", redriveFile,
		`	open := make([]int, ledger.Shards)
`, `	open := make([]int, ledger.Shards/2)
`, inHistories},
	{"parked before it is kept", intakeFile,
		`	}); err != nil {
		return err
	}
	return p.ledger.MarkParked(ctx, f.Entry)`,
		`	}); err != nil && p.ledger == nil {
		return err
	}
	return p.ledger.MarkParked(ctx, f.Entry)`, inHistories},
	{"redrive drops what it can't publish", redriveFile,
		`		case r.opts.Parking != nil && (e.Attempts >= r.opts.MaxAttempts || e.unpublishable()):`,
		`		case e.Attempts >= r.opts.MaxAttempts:
			err = r.ledger.MarkParked(ctx, e.Entry)
		case r.opts.Parking != nil && e.unpublishable():`, inHistories},

	// The ledger.
	{"record without a condition", ledgerFile,
		`aws.String("attribute_not_exists(#eventId) OR (attribute_not_exists(#shard) AND #expiresAt <= :now)")`,
		`aws.String("attribute_not_exists(#eventId) OR attribute_exists(#eventId) OR attribute_exists(#shard) OR #expiresAt <= :now")`, inHistories},
	{"what is published can be recorded again", ledgerFile,
		`OR (attribute_not_exists(#shard) AND #expiresAt <= :now)"`,
		`OR attribute_not_exists(#shard) OR #expiresAt <= :now"`, inHistories},
	{"the window is left to TTL", ledgerFile,
		`aws.String("attribute_not_exists(#eventId) OR (attribute_not_exists(#shard) AND #expiresAt <= :now)"),
		ExpressionAttributeNames: recordNames,
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":now": number(l.now().Unix()),
		},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err == nil {
		return Recorded, nil
	}
	var exists *types.ConditionalCheckFailedException
	if !errors.As(err, &exists) {
		return 0, fmt.Errorf("ledger: record`,
		`aws.String("attribute_not_exists(#eventId)"),
		ExpressionAttributeNames: map[string]string{"#eventId": names.LedgerKey},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err == nil {
		return Recorded, nil
	}
	var exists *types.ConditionalCheckFailedException
	if !errors.As(err, &exists) {
		return 0, fmt.Errorf("ledger: record`, inHistories},
	{"what is pending expires", ledgerFile,
		`		attrHolder:               &types.AttributeValueMemberB{Value: holder[:]},
	}
	if e.Claimed {`,
		`		attrHolder:               &types.AttributeValueMemberB{Value: holder[:]},
		names.LedgerTTL:          number(e.RecordedAt.Unix()),
	}
	if e.Claimed {`, inHistories},
	{"compare ids and not digests", ledgerFile,
		`	case string(bytesOf(exists.Item, attrDigest)) != string(e.Digest[:]):
		return Conflict, nil
	case string(bytesOf(exists.Item, attrHolder))`,
		`	case string(bytesOf(exists.Item, attrHolder))`, inHistories},
	{"the digest covers white space", ledgerFile,
		`		case ' ', '\t', '\n', '\r':
			h.Write(raw[start:i])
			start = i + 1
`, ``, inHistories},
	{"a record that fails is swallowed", ledgerFile,
		`		return 0, fmt.Errorf("ledger: record %s: %w", e.EventID, err)`,
		`		return Duplicate, nil`, inHistories},
	{"its own write is taken for a duplicate", ledgerFile,
		`	case string(bytesOf(exists.Item, attrHolder)) == string(holder[:]):
		// Our own write, whose answer got lost before the SDK tried again.
		return Recorded, nil
`, ``, inLedger},
	{"everybody's write is taken for its own", ledgerFile,
		`	case string(bytesOf(exists.Item, attrHolder)) == string(holder[:]):
		// Our own`,
		`	case len(bytesOf(exists.Item, attrHolder)) == len(holder):
		// Our own`, inHistories},
	{"the index entry is left behind", ledgerFile,
		`REMOVE #event, #claimed, #shard, #due, #holder, #attempts"`,
		`REMOVE #event, #claimed, #holder, #attempts"`, inHistories},
	{"the event's bytes are left behind", ledgerFile,
		`REMOVE #event, #claimed, #shard, #due, #holder, #attempts"`,
		`REMOVE #claimed, #shard, #due, #holder, #attempts"`, inHistories},
	{"a mark that fails is swallowed", ledgerFile,
		`	if err != nil && !errors.As(err, &done) {
		return fmt.Errorf("ledger: mark`,
		`	if err != nil && !errors.As(err, &done) && false {
		return fmt.Errorf("ledger: mark`, []string{"./shared/intake"}},
	{"lease without a condition", ledgerFile,
		`		ConditionExpression: aws.String("#due = :seen"),`,
		`		ConditionExpression: aws.String("#due = :seen OR attribute_exists(#due)"),`, inHistories},
	{"lease what is no longer pending", ledgerFile,
		`		ConditionExpression: aws.String("#due = :seen"),`,
		`		ConditionExpression: aws.String("#due = :seen OR attribute_not_exists(#due)"),`, inHistories},
	{"its own lease is not recognised", ledgerFile,
		`		if string(bytesOf(taken.Item, attrHolder)) != string(holder[:]) ||
			!millis(taken.Item, names.LedgerPendingDue).Equal(until.Truncate(time.Millisecond)) {
			return Entry{}, false, nil
		}
`, `		return Entry{}, false, nil
`, inLedger},
	{"everybody's lease is taken for its own", ledgerFile,
		`		if string(bytesOf(taken.Item, attrHolder)) != string(holder[:]) ||
			!millis`,
		`		if !millis`, inHistories},
	{"postpone what another holds", ledgerFile,
		`aws.String("#holder = :holder AND attribute_exists(#shard)")`,
		`aws.String("attribute_exists(#shard) OR #holder = :holder")`, inLedger},
	{"a mark without a condition", ledgerFile,
		`aws.String("attribute_exists(#shard) AND #digest = :digest")`,
		`aws.String("attribute_exists(#shard) OR #digest = :digest OR attribute_not_exists(#shard)")`, inLedger},

	// What AWS rejects before the function.
	{"more is promised than always fits", settingsFile,
		`const SafePayloadBytes = (invocationBytes - envelopeBytes) / 2`, `const SafePayloadBytes = (invocationBytes - envelopeBytes) * 3 / 4`, inWebhook},
	{"the sheet promises what the function accepts", "infra/subscription.go",
		`min(conf.Webhook.MaxPayloadBytes, settings.SafePayloadBytes)`, `max(conf.Webhook.MaxPayloadBytes, settings.SafePayloadBytes)`, inInfra},
	{"what the function rejects counts as rejected by AWS", handlerFile,
		`count(status >= 400 && status <= 499)`, `count(status > 400 && status <= 499)`, inWebhook},

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
		`least := 2*w.Window.Tolerance + w.Timeout + time.Second`, `least := w.Window.Tolerance + w.Timeout + time.Second`, inSettings},
	{"a function refuses settings that contradict", settingsFile,
		`	w.LedgerTable = r.resource(names.LedgerTableEnv)
	w.KeysTable`, `	r.contradictions(Deployment{Webhook: w})
	w.LedgerTable = r.resource(names.LedgerTableEnv)
	w.KeysTable`, inSettings},
	{"any address is loopback", settingsFile,
		`err == nil && net.IP(ip.AsSlice()).IsLoopback()`, `err == nil || net.IP(ip.AsSlice()).IsLoopback()`, inSettings},
	{"any http URL is taken", settingsFile,
		`!(u.Scheme == "http" && isLoopback(u.Hostname()))`, `!(u.Scheme == "http" || isLoopback(u.Hostname()))`, inSettings},
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
		`errors.As(err, &api) && callerErrors[api.ErrorCode()]`, `errors.As(err, &api) && false`, inBus},
	{"a time that the SDK can't represent is sent changed", busFile,
		`t.Equal(time.Unix(0, t.UnixNano()))`, `!t.IsZero()`, inBus},
	{"what EventBridge is known to reject is sent", busFile,
		`results[i] = Check(e.Bytes)`, `_, _ = i, e`, inBus},
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
		`(e.Attempts >= r.opts.MaxAttempts || e.unpublishable())`, `e.Attempts >= r.opts.MaxAttempts`, inIntake},
	{"what EventBridge rejects waits for redrive", intakeFile,
		`	r.parkUnpublishable(ctx, p, done.failed, result)
`, ``, inWebhook},
	{"what can't be parked counts as parked", intakeFile,
		`parked[i] = p.park(ctx, failed[i]) == nil`, `parked[i] = p.park(ctx, failed[i]) != context.Canceled`, inWebhook},
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
		`		Detail:       aws.String(string(e.Bytes)),
`, `		Detail:       aws.String(" " + string(e.Bytes)),
`, inHistories},

	{"what is postponed does not count as pending", redriveFile,
		`	r.lookAtWaiting(ctx, start, &result)
`, ``, inIntake},
	{"what receivers hold hides what is postponed", ledgerFile,
		`"#shard = :shard AND #due > :at", false, nil, limit)`, `"#shard = :shard AND #due > :at", true, nil, limit)`, inIntake},

	// Large deliveries.
	{"what the ledger has is written again", roundsFile,
		`	if again.Load() {
		rest`, `	if again.Load() && len(rest) == 0 {
		rest`, inIntake},
	{"a new delivery is looked up", roundsFile,
		`	if again.Load() {
		rest`, `	if len(rest) > 0 {
		rest`, inIntake},
	{"a known large event is uploaded again", roundsFile,
		`	left := r.skipKnown(ctx, entries, large, outcomes)
`, `	left := large
`, inIntake},
	{"an item whose window has passed is skipped", roundsFile,
		`			case !ok || !known.Current:`, `			case !ok:`, inIntake},
	{"a conflict that is looked up is a duplicate", roundsFile,
		`				outcomes[i] = ledger.Conflict
`, `				outcomes[i] = ledger.Duplicate
`, inIntake},
	{"a look-up takes all the time", roundsFile,
		`deadline.Sub(r.opts.Now())/2)`, `deadline.Sub(r.opts.Now()))`, inIntake},
	{"what DynamoDB leaves unprocessed is taken for unknown", knownFile,
		`		if len(rest) == 0 {
			return known, nil
		}
`, `		if len(rest) >= 0 {
			return known, nil
		}
`, inLedger},
	{"redrive ignores that it could not park", redriveFile,
		`		if err != nil {
			result.fail(err)
		}
	})
}

func (r *Redriven)`, `		_ = err
	})
}

func (r *Redriven)`, inIntake},

	// Replay.
	{"replay without verifying the signature", proofFile,
		`	if err == nil {
		err = signature.Verify(key, p.Payload, proof.Proof)
	}
`, ``, inIntake},
	{"replay with any exponent", proofFile,
		`keys.ParseJWK(p.JWK, p.KeyID, r.opts.Exponents)`, `keys.ParseJWK(p.JWK, p.KeyID, []int{3, 65537})`, inIntake},
	{"replay the whole delivery of a conflict", replayFile,
		`	if p.Reason != parking.Conflict {
		r.take(`, `	if p.Reason != parking.Conflict || version == ParkedVersion {
		r.take(`, inIntake},
	{"replay a conflict without a decision", replayFile,
		`p.Reason == parking.Conflict && version != FirstVersion && version != ParkedVersion:`,
		`p.Reason == parking.Conflict && version != FirstVersion && version != ParkedVersion && version != NoVersion:`, inIntake},
	{"the first version stays although it was never published", replayFile,
		`		case ok && first.Parked:`, `		case ok && first.Parked && first.Pending:`, inIntake},
	{"one of several parked contents is chosen", replayFile,
		`		if ids[e.EventID] {
			result.Outcome, result.Err = VersionUnfit`, `		if ids[e.EventID] && len(entries) > 2 {
			result.Outcome, result.Err = VersionUnfit`, inIntake},
	{"a changed event is restored", replayFile,
		`|| !p.Claimed && e.Digest != ledger.DigestOf(event.Bytes) {`, `|| p.Claimed && e.Digest == ledger.DigestOf(event.Bytes) {`, inIntake},
	{"a restored event keeps the time of its first recording", replayFile,
		`DeliveryID: p.DeliveryID, RecordedAt: r.opts.Now(), Event: event`, `DeliveryID: p.DeliveryID, RecordedAt: p.RecordedAt, Event: event`, inIntake},
	{"a replay goes on when its time is up", replayFile,
		`		if ctx.Err() != nil {
			failures[i] = errOutOfTime
			return
		}
		outcomes[i], failures[i] = write(ctx,`, `		outcomes[i], failures[i] = write(context.WithoutCancel(ctx),`, inIntake},
	{"a conflict of a restored event counts as a duplicate", restoreFile,
		`	case string(bytesOf(exists.Item, attrDigest)) != string(e.Digest[:]):
		return Conflict, nil
	}
`, `	}
`, inIntake},
	{"a replaced version overwrites one that is pending", restoreFile,
		`(attribute_not_exists(#shard) AND (#digest <> :digest OR attribute_exists(#parkedAt)))`,
		`(attribute_not_exists(#shard) OR (#digest <> :digest OR attribute_exists(#parkedAt)))`, inIntake},
	{"the window begins when an event is recorded", ledgerFile,
		`later(l.now(), e.RecordedAt).Add(l.window)`, `e.RecordedAt.Add(l.window)`, inLedger},
	{"what was not accepted is marked as replayed", redriveHandlerFile,
		`			if r.Outcome == intake.Accepted || r.Outcome == intake.Conflict && r.Parked != "" {`,
		`			if r.Outcome != intake.KeyRefused {`, inRedrive},
	{"a conflict is marked as replayed", redriveHandlerFile,
		`r.Outcome == intake.Conflict && r.Parked != "" {`, `r.Outcome == intake.Conflict {`, inRedrive},
	{"settled without a reason", redriveHandlerFile,
		`	if strings.TrimSpace(e.Reason) == "" {`, `	if strings.TrimSpace(e.Reason) == "" && len(e.Settle) == 0 {`, inRedrive},
	{"replay --all includes conflicts", replayCommandFile,
		`			if l.Reason == string(parking.Conflict) {`, `			if l.Reason == string(parking.Conflict) && len(chosen) > 1000 {`, inOperate},
	{"what is settled is listed as open", parkedCommandFile,
		`State: cmp.Or(states[name], parking.Open)}`, `State: cmp.Or(parking.State(strings.TrimPrefix(string(states[name]), "settled")), parking.Open)}`, inOperate},

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
		`"secretsmanager:PutSecretValue"}, secret.AttrId())`, `"secretsmanager:PutSecretValue"}, secret.Ref())`, inPermissions},

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
		`"OR (fetchedAt <= :at AND unknownSince <= :oldest)"`, `"OR fetchedAt <= :at OR unknownSince <= :oldest"`, inKeys},
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
	{"the signature's form is checked after the budget is spent", intakeFile,
		`	if err := signature.CheckForm(p.Signature, keys.MinModulusBytes, keys.MaxModulusBytes); err != nil {
		return p, err
	}
`, ``, inIntake},
	{"the source of a forgery becomes known", intakeFile,
		`	proof, err := r.authenticate(ctx, d, start, &result)
`, `	r.keys.RecordSource(ctx, d.SourceIP)
	proof, err := r.authenticate(ctx, d, start, &result)
`, inIntake},
	{"the source of an authentic webhook does not become known", intakeFile,
		`	r.keys.RecordSource(ctx, d.SourceIP)
`, ``, inIntake},
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
	{"a source address is read from a header", handlerFile,
		`	addr, err := netip.ParseAddr(request.RequestContext.HTTP.SourceIP)`,
		`	addr, err := netip.ParseAddr(request.Headers["x-forwarded-for"])`, inWebhook},
	{"an outage is answered like a success", handlerFile,
		`	if result.Outcome == intake.Accepted || result.Outcome == intake.Conflict`,
		`	if result.Outcome == intake.Accepted || result.Outcome == intake.LedgerUnavailable || result.Outcome == intake.Conflict`, inWebhook},
	{"a forged delivery learns why", handlerFile,
		`	intake.SignatureDoesntMatch: unauthentic,`,
		`	intake.SignatureDoesntMatch: {status: http.StatusForbidden, detail: "The signature does not match.", metric: unauthenticated},`, inWebhook},
	{"a rejected webhook writes a metric without a name", handlerFile,
		`	payloadEmpty:     {status: http.StatusBadRequest, detail: "The request has no body.", metric: rejected},`,
		`	payloadEmpty:     {status: http.StatusBadRequest, detail: "The request has no body."},`, inWebhook},

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
		`	options.RefreshPercent, options.Interval = s.RefreshPercent, settings.TokenInterval`, `	options.Interval = settings.TokenInterval`, inTokenMain},
}
