// Prints the newest snapshots of a topic: rows, delta and the columns with the largest sums of squares.
//
//	go run . localhost:9092 sketches
//
// It shares no code with sfd-stream: docs/reference/formats.md says all that it needs.
package main

import (
	"context"
	"fmt"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	topColumns = 5
	silence    = 5 * time.Second // a compacted topic may end in offsets that hold no record
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: reader-go BROKER TOPIC")
		os.Exit(2)
	}
	newest, skipped, err := readTopic(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if skipped > 0 {
		fmt.Fprintf(os.Stderr, "skipped %d messages that are no snapshots\n", skipped)
	}
	printAll(newest)
}

// readTopic reads all partitions up to their present ends and keeps the newest message of each key.
func readTopic(broker, topic string) (map[string]message, int, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(broker),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), // a transaction's marker may be the last record
	)
	if err != nil {
		return nil, 0, err
	}
	defer client.Close()
	left, err := partitionsWithRecords(client, topic)
	if err != nil {
		return nil, 0, err
	}
	newest, skipped := map[string]message{}, 0
	for len(left) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), silence)
		fetches := client.PollFetches(ctx)
		cancel()
		if ctx.Err() != nil && fetches.NumRecords() == 0 {
			break
		}
		fetches.EachRecord(func(record *kgo.Record) {
			if !record.Attrs.IsControl() && !keep(newest, record) {
				skipped++
			}
			if end, waiting := left[record.Partition]; waiting && record.Offset+1 >= end {
				delete(left, record.Partition)
			}
		})
	}
	return newest, skipped, nil
}

// partitionsWithRecords returns the end offset of each partition that is not empty.
func partitionsWithRecords(client *kgo.Client, topic string) (map[int32]int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	admin := kadm.NewClient(client)
	starts, err := admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	ends, err := admin.ListCommittedOffsets(ctx, topic)
	if err != nil {
		return nil, err
	}
	if err := ends.Error(); err != nil {
		return nil, err
	}
	left := map[int32]int64{}
	ends.Each(func(end kadm.ListedOffset) {
		if start, ok := starts.Lookup(topic, end.Partition); ok && end.Offset > start.Offset {
			left[end.Partition] = end.Offset
		}
	})
	return left, nil
}

// keep takes a record if it is newer than what its key has, and reports whether it could be read.
// A null value resets its key.
func keep(newest map[string]message, record *kgo.Record) bool {
	key := string(record.Key)
	if record.Value == nil {
		delete(newest, key)
		return true
	}
	found, err := decode(record.Value)
	if err != nil || found.id().key() != key {
		return false
	}
	if before, ok := newest[key]; !ok || found.id().after(before.id()) {
		newest[key] = found
	}
	return true
}

func printAll(newest map[string]message) {
	keys := make([]string, 0, len(newest))
	for key := range newest {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	var snapshots []*snapshot
	for _, key := range keys {
		switch found := newest[key].(type) {
		case *reference:
			fmt.Printf("%s\tin the store: %s/%s\t%d bytes\n", key, found.Store, found.Key, found.Size)
		case *snapshot:
			snapshots = append(snapshots, found)
			fmt.Printf("%s\trows %d\tdelta %.6g\ttop %s\n", key, found.Rows, found.Delta, top(found))
		}
	}
	if len(snapshots) == 0 {
		return
	}
	all, err := merge(snapshots)
	if err != nil {
		fmt.Printf("all\tnot merged: %v\n", err)
		return
	}
	fmt.Printf("all\trows %d\tdelta %.6g\ttop %s\n", all.Rows, all.Delta, top(all))
}

// top names the columns whose sums of squares in B are the largest. In A they are at most delta larger.
func top(s *snapshot) string {
	columns := make([]int, len(s.squares))
	for column := range columns {
		columns[column] = column
	}
	sort.SliceStable(columns, func(a, b int) bool { return s.squares[columns[a]] > s.squares[columns[b]] })
	words := []string{}
	for _, column := range columns[:min(topColumns, len(columns))] {
		words = append(words, fmt.Sprintf("%s=%.6g", s.name(column), s.squares[column]))
	}
	return strings.Join(words, " ")
}
