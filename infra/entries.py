# python3 entries.py BUS writes files for PutEvents with the events of the proofs in the folder proofs whose eventIds
# are in the file ids, byte for byte. It prints the ids of which it cannot: those without a proof, large events, and
# those with two contents, of which "payhook event ID" has the published one's delivery. RUNBOOK.md, "A bus that was
# gone", says when it is needed.
#
# 1. Write the ids of what was published while the bus was gone into the file ids. CloudTrail has the times of its
#    deletion and creation; in milliseconds: date -d 2026-01-31T12:00Z +%s000
#
#      aws dynamodb scan --table-name LEDGER --projection-expression eventId \
#        --filter-expression 'publishedAt BETWEEN :begin AND :end' \
#        --expression-attribute-values '{":begin": {"N": "1769860800000"}, ":end": {"N": "1769864400000"}}' \
#        --query 'Items[].[eventId.S]' --output text > ids
#
# 2. Copy the proofs of these hours (UTC) and those around, as the service's clock may differ, and verify them. The
#    folder keys has the keys of the service. Delete what is not signed by the service.
#
#      aws s3 sync s3://EVIDENCE_BUCKET proofs --exclude '*' --include 'accepted/*/2026/01/31/1[1-4]/*'
#      payhook evidence verify --keys keys proofs
#
# 3. python3 CLONE/infra/entries.py BUS
#
# 4. Put the events on the bus. If a line is not 0, some of the 10 events of this file failed: call it again for the
#    file; the others are then published twice.
#
#      for file in entries-*.json; do aws events put-events --entries "file://$file" --query FailedEntryCount; done
import base64, json, pathlib, re, sys

read = json.JSONDecoder(parse_int=str, parse_float=str).raw_decode
skip = re.compile(r"[\s:,]*").match

def parts(text, at):  # the names, beginnings and ends of what is in the object or array at a position
    named, at = text[at] == "{", skip(text, at + 1).end()
    while text[at] not in "]}":
        name, begin = read(text, at) if named else ("", at)
        begin = skip(text, begin).end()
        end = read(text, begin)[1]
        yield name, begin, end
        at = skip(text, end).end()

ids, found = set(open("ids").read().lower().split()), {}
for file in pathlib.Path("proofs").rglob("*.json"):
    proof = json.loads(file.read_bytes())
    text = base64.b64decode(proof["payload"]).decode("utf-8-sig")
    for name, begin, _ in parts(text, skip(text, 0).end()):
        for _, begin, end in parts(text, begin) if name == "events" else []:
            detail = text[begin:end]  # as it was signed: JSON that is written again has other digits
            event = read(detail, 0)[0]
            id = event.get("eventId") if isinstance(event, dict) else None
            if isinstance(id, str) and id.lower() in ids:
                found.setdefault(id.lower(), {})[detail] = {
                    "EventBusName": sys.argv[1], "Source": "payhook", "DetailType": event.get("eventName"),
                    "Detail": detail, "Resources": [proof["deliveryId"]]}
batches = [[]]
for id in sorted(ids):
    entries = list(found.get(id, {}).values())
    if len(entries) != 1 or len(entries[0]["Detail"].encode()) > 200000:
        print(id, "is large" if len(entries) == 1 else f"has {len(entries)} contents in the proofs")
        continue
    if len(batches[-1]) == 10 or len(json.dumps(batches[-1] + entries)) > 240000:
        batches.append([])
    batches[-1] += entries
for n, batch in enumerate(batches):
    pathlib.Path(f"entries-{n:04}.json").write_text(json.dumps(batch))
