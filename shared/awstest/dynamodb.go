// Package awstest implements AWS services in memory, for tests and benchmarks. It has the
// operations that Payhook uses, with the semantics that it relies on.
//
// It guarantees that these operations behave as the conformance test of this package
// requires, which also runs with an emulator of AWS.
package awstest

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"payhook.example/shared/names"
)

// Item is an item of a table.
type Item = map[string]types.AttributeValue

// DynamoDB is a client of a DynamoDB in memory. It is safe for concurrent use; each
// operation is atomic.
type DynamoDB struct {
	// Hook, if set, handles every call.
	Hook Hook
	// Unprocessed, if set, is called for every key of BatchGetItem. It reports whether the
	// key is left unprocessed.
	Unprocessed func(id string) bool

	*database
}

type database struct {
	mu     sync.Mutex
	tables map[string]*table
	calls  map[string]int
	held   bool // indexes are not updated
}

type table struct {
	key   string
	keys  map[string]types.ScalarAttributeType // of the table and its index
	items map[string]Item
	// indexed has the projections of the items that are in the index of a ledger; nil for a
	// table without an index. The index is sparse: items without all its keys are not in it.
	indexed map[string]Item
	behind  []string // keys of the items that are not updated in the index
}

// Hook handles the calls of a DynamoDB in place of the service. in is the input of the SDK,
// such as *dynamodb.PutItemInput. next processes the call, with this input or with another
// one of its type. So a hook can fail before or after the effect of a call, wait, or change
// the answer:
//
//	db.Hook = func(ctx context.Context, in any, next awstest.Next) (any, error) {
//		if _, ok := in.(*dynamodb.UpdateItemInput); ok {
//			return nil, errors.New("DynamoDB is down")
//		}
//		return next(ctx, in)
//	}
//
// The hook returns next's answer, or another output of the same operation, or an error. It
// runs without a lock, so it may wait and may call the service. Concurrent calls run it
// concurrently.
type Hook func(ctx context.Context, in any, next Next) (any, error)

// Next processes a call and returns its output, such as *dynamodb.PutItemOutput.
type Next func(ctx context.Context, in any) (any, error)

// NewDynamoDB returns a DynamoDB without tables.
func NewDynamoDB() *DynamoDB {
	return &DynamoDB{database: &database{tables: map[string]*table{}, calls: map[string]int{}}}
}

// With returns another client of the same DynamoDB, whose calls the hook handles.
func (db *DynamoDB) With(hook Hook) *DynamoDB { return &DynamoDB{Hook: hook, database: db.database} }

// CreateLedger creates a table with the keys and the index of the ledger: those of the
// deployed table.
func (db *DynamoDB) CreateLedger(name string) {
	db.CreateTable(name, names.LedgerKey)
	t := db.tables[name]
	t.keys[names.LedgerShard] = types.ScalarAttributeTypeS
	t.keys[names.LedgerDue] = types.ScalarAttributeTypeN
	t.indexed = map[string]Item{}
}

// CreateTable creates a table with a string partition key.
func (db *DynamoDB) CreateTable(name, partitionKey string) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.tables[name] = &table{key: partitionKey, items: map[string]Item{},
		keys: map[string]types.ScalarAttributeType{partitionKey: types.ScalarAttributeTypeS}}
}

// HoldIndexes stops the updates of all indexes until CatchUp, like the delay of DynamoDB.
func (db *DynamoDB) HoldIndexes() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.held = true
}

// CatchUp updates every index. After that, indexes are updated immediately.
func (db *DynamoDB) CatchUp() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.held = false
	for _, t := range db.tables {
		for _, id := range t.behind {
			t.project(id)
		}
		t.behind = t.behind[:0]
	}
}

// set replaces an item, or deletes it if it is nil. The caller holds the lock.
func (db *DynamoDB) set(t *table, id string, item Item) {
	if item == nil {
		delete(t.items, id)
	} else {
		t.items[id] = item
	}
	if db.held {
		t.behind = append(t.behind, id)
	} else {
		t.project(id)
	}
}

// project updates the index for one item.
func (t *table) project(id string) {
	item := t.items[id]
	switch {
	case t.indexed == nil:
	case len(t.keysOf(item)) < len(t.keys):
		delete(t.indexed, id)
	default:
		t.indexed[id] = project(item, append(slices.Collect(maps.Keys(t.keys)), names.LedgerProjection()...))
	}
}

// keysOf returns the keys that an item has in the table and its index.
func (t *table) keysOf(item Item) Item { return project(item, slices.Collect(maps.Keys(t.keys))) }

// check returns the key of an item, if its keys in the table and the index have their types.
func (t *table) check(item Item) (id string, err error) {
	if item[t.key] == nil {
		return "", invalid("One of the required keys was not given a value")
	}
	for name, want := range t.keys {
		if v := item[name]; v != nil && (typeOf(v) != want || text(v) == "") {
			return "", invalid("Type mismatch for key " + name)
		}
	}
	return text(item[t.key]), nil
}

// typeOf returns the type of a value: S, N, B or BOOL.
func typeOf(v types.AttributeValue) types.ScalarAttributeType {
	name := strings.TrimPrefix(reflect.TypeOf(v).Elem().Name(), "AttributeValueMember")
	return types.ScalarAttributeType(name)
}

// Items returns a copy of a table's items, by their keys.
func (db *DynamoDB) Items(name string) map[string]Item {
	db.mu.Lock()
	defer db.mu.Unlock()
	return maps.Clone(db.tables[name].items)
}

// Indexed returns the number of items of a ledger's index in a shard.
func (db *DynamoDB) Indexed(table, shard string) (n int) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, item := range db.tables[table].indexed {
		if text(item[names.LedgerShard]) == shard {
			n++
		}
	}
	return n
}

// Calls returns the number of calls of an operation that were processed, including those
// that failed. It does not count calls that a hook answers without [Next].
func (db *DynamoDB) Calls(operation string) int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.calls[operation]
}

// processed makes a call through the hook of a client. Processing counts it and holds the
// lock.
func processed[In, Out any](ctx context.Context, db *DynamoDB, in *In,
	process func(*In) (*Out, error)) (*Out, error) {
	next := func(ctx context.Context, in any) (any, error) {
		db.mu.Lock()
		defer db.mu.Unlock()
		db.calls[strings.TrimSuffix(reflect.TypeFor[In]().Name(), "Input")]++
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return process(in.(*In))
	}
	call := next
	if db.Hook != nil {
		call = func(ctx context.Context, in any) (any, error) { return db.Hook(ctx, in, next) }
	}
	out, err := call(ctx, in)
	if err != nil {
		return nil, err
	}
	return out.(*Out), nil
}

// open returns a table. The caller holds the lock.
func (db *DynamoDB) open(name *string) (*table, error) {
	t := db.tables[aws.ToString(name)]
	if t == nil {
		return nil, &types.ResourceNotFoundException{Message: aws.String("no such table")}
	}
	return t, nil
}

// find returns a table and the key of an item. The caller holds the lock.
func (db *DynamoDB) find(name *string, item Item) (t *table, id string, err error) {
	if t, err = db.open(name); err == nil {
		id, err = t.check(item)
	}
	return t, id, err
}

// GetItem returns an item by its key.
func (db *DynamoDB) GetItem(ctx context.Context, in *dynamodb.GetItemInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	return processed(ctx, db, in, func(in *dynamodb.GetItemInput) (*dynamodb.GetItemOutput, error) {
		t, id, err := db.find(in.TableName, in.Key)
		if err != nil {
			return nil, err
		}
		attributes, err := parse(in.ProjectionExpression, in.ExpressionAttributeNames, nil, nil, (*parser).projection)
		return &dynamodb.GetItemOutput{Item: project(t.items[id], attributes)}, err
	})
}

// BatchGetItem returns items of one or more tables by their keys. It ignores keys without
// an item, and leaves those unprocessed for which Unprocessed returns true.
func (db *DynamoDB) BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	return processed(ctx, db, in, func(in *dynamodb.BatchGetItemInput) (*dynamodb.BatchGetItemOutput, error) {
		out := &dynamodb.BatchGetItemOutput{Responses: map[string][]Item{},
			UnprocessedKeys: map[string]types.KeysAndAttributes{}}
		for name, ask := range in.RequestItems {
			t, err := db.open(&name)
			if err != nil {
				return nil, err
			}
			attributes, err := parse(ask.ProjectionExpression, ask.ExpressionAttributeNames, nil, nil,
				(*parser).projection)
			if err != nil {
				return nil, err
			}
			if len(ask.Keys) == 0 || len(ask.Keys) > maxBatchKeys {
				return nil, invalid("Too many items requested for the BatchGetItem call")
			}
			rest, seen := ask, map[string]bool{}
			rest.Keys = nil
			for _, key := range ask.Keys {
				_, id, err := db.find(&name, key)
				if err == nil && seen[id] {
					err = invalid("Provided list of item keys contains duplicates")
				}
				if err != nil {
					return nil, err
				}
				seen[id] = true
				if db.Unprocessed != nil && db.Unprocessed(id) {
					rest.Keys = append(rest.Keys, key)
				} else if item := t.items[id]; item != nil {
					out.Responses[name] = append(out.Responses[name], project(item, attributes))
				}
			}
			if len(rest.Keys) > 0 {
				out.UnprocessedKeys[name] = rest
			}
		}
		return out, nil
	})
}

// project returns a copy of an item with these attributes; nil means all.
func project(item Item, attributes []string) Item {
	if attributes == nil {
		return maps.Clone(item)
	}
	part := Item{}
	for _, name := range attributes {
		if value, ok := item[name]; ok {
			part[name] = value
		}
	}
	return part
}

// write replaces an item if a condition holds.
type write struct {
	on     *table
	id     string
	holds  condition
	change func(old Item) (Item, error)
	want   types.ReturnValuesOnConditionCheckFailure
}

// write makes a write and returns a copy of the new item. The caller holds the lock.
func (db *DynamoDB) write(w write) (Item, error) {
	old := w.on.items[w.id]
	if !w.holds(old) {
		failed := &types.ConditionalCheckFailedException{Message: aws.String("The conditional request failed")}
		if w.want == types.ReturnValuesOnConditionCheckFailureAllOld {
			failed.Item = maps.Clone(old)
		}
		return nil, failed
	}
	item, err := w.change(old)
	if err != nil {
		return nil, err
	}
	if id, err := w.on.check(item); err != nil || id != w.id {
		return nil, cmp.Or(err, invalid("Cannot update attribute "+w.on.key+". This attribute is part of the key"))
	}
	if ItemSize(item) > maxItemBytes {
		return nil, invalid("Item size has exceeded the maximum allowed size")
	}
	db.set(w.on, w.id, maps.Clone(item))
	return item, nil
}

// PutItem replaces an item if its condition holds.
func (db *DynamoDB) PutItem(ctx context.Context, in *dynamodb.PutItemInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	return processed(ctx, db, in, func(in *dynamodb.PutItemInput) (*dynamodb.PutItemOutput, error) {
		t, id, err := db.find(in.TableName, in.Item)
		if err != nil {
			return nil, err
		}
		holds, err := parse(in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues, always,
			(*parser).or)
		if err != nil {
			return nil, err
		}
		_, err = db.write(write{t, id, holds, func(Item) (Item, error) { return in.Item, nil },
			in.ReturnValuesOnConditionCheckFailure})
		return &dynamodb.PutItemOutput{}, err
	})
}

// UpdateItem changes or creates an item if its condition holds.
func (db *DynamoDB) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	return processed(ctx, db, in, func(in *dynamodb.UpdateItemInput) (*dynamodb.UpdateItemOutput, error) {
		t, id, err := db.find(in.TableName, in.Key)
		if err != nil {
			return nil, err
		}
		holds, err := parse(in.ConditionExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues, always,
			(*parser).or)
		if err != nil {
			return nil, err
		}
		change, err := parse(in.UpdateExpression, in.ExpressionAttributeNames, in.ExpressionAttributeValues, nil,
			(*parser).changes)
		if err != nil {
			return nil, err
		}
		item, err := db.write(write{t, id, holds, func(old Item) (Item, error) {
			item, err := change.apply(old)
			if old == nil && err == nil {
				maps.Copy(item, in.Key)
			}
			return item, err
		}, in.ReturnValuesOnConditionCheckFailure})
		if in.ReturnValues != types.ReturnValueAllNew {
			item = nil
		}
		return &dynamodb.UpdateItemOutput{Attributes: item}, err
	})
}

// DeleteItem deletes an item if it exists. It does not support conditions.
func (db *DynamoDB) DeleteItem(ctx context.Context, in *dynamodb.DeleteItemInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error) {
	return processed(ctx, db, in, func(in *dynamodb.DeleteItemInput) (*dynamodb.DeleteItemOutput, error) {
		t, id, err := db.find(in.TableName, in.Key)
		if err == nil && in.ConditionExpression != nil {
			err = invalid("awstest: a condition of DeleteItem")
		}
		if err == nil {
			db.set(t, id, nil)
		}
		return &dynamodb.DeleteItemOutput{}, err
	})
}

// Query returns the projected items of an index whose keys meet the condition, in
// ascending or descending order of the sort key.
func (db *DynamoDB) Query(ctx context.Context, in *dynamodb.QueryInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	return processed(ctx, db, in, func(in *dynamodb.QueryInput) (*dynamodb.QueryOutput, error) {
		t, err := db.openIndex(in.TableName, in.IndexName, in.ExclusiveStartKey)
		if err != nil {
			return nil, err
		}
		p := newParser(aws.ToString(in.KeyConditionExpression), in.ExpressionAttributeNames,
			in.ExpressionAttributeValues)
		holds := p.and()
		if err := p.end(); err != nil {
			return nil, err
		}
		if p.equal[names.LedgerShard] == nil || slices.ContainsFunc(p.compared, func(name string) bool {
			return name != names.LedgerShard && name != names.LedgerDue
		}) {
			return nil, invalid("Query condition missed key schema element, or has an attribute that is no key")
		}
		order := func(a, b Item) int {
			by := cmp.Or(compare(a[names.LedgerDue], b[names.LedgerDue]),
				cmp.Compare(text(a[t.key]), text(b[t.key])))
			if in.ScanIndexForward != nil && !*in.ScanIndexForward {
				return -by
			}
			return by
		}
		items, next := t.page(in.ExclusiveStartKey, int(aws.ToInt32(in.Limit)), holds, order)
		return &dynamodb.QueryOutput{Items: items, Count: int32(len(items)), LastEvaluatedKey: next}, nil
	})
}

// openIndex returns a table with its index, if a call can start after that key; nil starts at
// the beginning. The caller holds the lock.
func (db *DynamoDB) openIndex(name, index *string, after Item) (*table, error) {
	t, err := db.open(name)
	if err != nil {
		return nil, err
	}
	if t.indexed == nil || aws.ToString(index) != names.LedgerIndex {
		return nil, invalid("no such index")
	}
	return t, t.checkStart(after)
}

// checkStart checks a key after which a call starts.
func (t *table) checkStart(after Item) error {
	if after != nil {
		if _, err := t.check(after); err != nil || len(after) != len(t.keys) || len(t.keysOf(after)) != len(t.keys) {
			return invalid("The provided starting key is invalid")
		}
	}
	return nil
}

// page returns the first items of the index after that one, nil for the beginning, that meet a
// condition, in an order: as many as fit into a page and the limit, if that is not 0. It
// returns the key from which the next page continues, nil for none. A full page has one even
// if no item follows.
func (t *table) page(after Item, limit int, holds condition, order func(a, b Item) int) (page []Item, next Item) {
	var items []Item
	for _, item := range t.indexed {
		if holds(item) && (after == nil || order(item, after) > 0) {
			items = append(items, maps.Clone(item))
		}
	}
	slices.SortFunc(items, order)
	bytes := 0
	for i, item := range items {
		if bytes += ItemSize(item); i > 0 && bytes > maxPageBytes || limit > 0 && i == limit {
			items, limit = items[:i], i
			break
		}
	}
	if limit > 0 && len(items) == limit {
		next = t.keysOf(items[limit-1])
	}
	return items, next
}

// Scan returns the items of a table, or the projected items of its index, in the order of their keys.
func (db *DynamoDB) Scan(ctx context.Context, in *dynamodb.ScanInput,
	_ ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error) {
	return processed(ctx, db, in, func(in *dynamodb.ScanInput) (*dynamodb.ScanOutput, error) {
		attributes, err := parse(in.ProjectionExpression, in.ExpressionAttributeNames, nil, nil, (*parser).projection)
		if err != nil {
			return nil, err
		}
		var scanned *table
		if in.IndexName == nil {
			var t *table
			if t, err = db.open(in.TableName); err == nil {
				scanned = &table{key: t.key, indexed: t.items,
					keys: map[string]types.ScalarAttributeType{t.key: t.keys[t.key]}}
				err = scanned.checkStart(in.ExclusiveStartKey)
			}
		} else {
			scanned, err = db.openIndex(in.TableName, in.IndexName, in.ExclusiveStartKey)
		}
		if err != nil {
			return nil, err
		}
		items, next := scanned.page(in.ExclusiveStartKey, int(aws.ToInt32(in.Limit)), always,
			func(a, b Item) int { return cmp.Compare(text(a[scanned.key]), text(b[scanned.key])) })
		for n, item := range items {
			items[n] = project(item, attributes)
		}
		return &dynamodb.ScanOutput{Items: items, Count: int32(len(items)), LastEvaluatedKey: next}, nil
	})
}

// The limits of items, pages and BatchGetItem (AWS, "Quotas in Amazon DynamoDB", "Query" and
// "BatchGetItem" in the DynamoDB Developer Guide and API Reference).
const (
	maxItemBytes = 400 << 10
	maxPageBytes = 1 << 20
	maxBatchKeys = 100
)

// ItemSize returns the size of an item in bytes: that of the names and values of its
// attributes (AWS, "DynamoDB item sizes and formats" in the DynamoDB Developer Guide). A
// number has one byte plus one for every two digits.
func ItemSize(item Item) (size int) {
	for name, value := range item {
		size += len(name)
		switch value := value.(type) {
		case *types.AttributeValueMemberN:
			size += 1 + (len(strings.Trim(value.Value, "-0"))+1)/2
		case *types.AttributeValueMemberBOOL, *types.AttributeValueMemberNULL:
			size++
		default:
			size += len(text(value))
		}
	}
	return size
}

// text returns the value of a key as a string.
func text(v types.AttributeValue) string {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberN:
		return v.Value
	case *types.AttributeValueMemberB:
		return string(v.Value)
	}
	return ""
}

// differ is the result of the comparison of values of two types, or with none.
const differ = 2

// compare returns -1, 0 or 1 for two values of one type, and differ otherwise.
func compare(a, b types.AttributeValue) int {
	if a == nil || typeOf(a) != typeOf(b) {
		return differ
	}
	if x, ok := number(a); ok {
		y, _ := number(b)
		return cmp.Compare(x, y)
	}
	return cmp.Compare(text(a), text(b))
}

// number returns the value of a number. Payhook stores whole numbers only.
func number(v types.AttributeValue) (int64, bool) {
	n, ok := v.(*types.AttributeValueMemberN)
	if !ok {
		return 0, false
	}
	i, err := strconv.ParseInt(n.Value, 10, 64)
	return i, err == nil
}
