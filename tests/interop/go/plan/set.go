package plan

import (
	"sort"
	"sync"
)

// Set is a set of strings that several goroutines add to.
type Set struct {
	lock   sync.Mutex
	values map[string]bool
}

// Add puts a value in.
func (s *Set) Add(value string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.values == nil {
		s.values = map[string]bool{}
	}
	s.values[value] = true
}

// Len is the number of different values.
func (s *Set) Len() int {
	s.lock.Lock()
	defer s.lock.Unlock()
	return len(s.values)
}

// Sorted gives the values in order.
func (s *Set) Sorted() []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	sorted := make([]string, 0, len(s.values))
	for value := range s.values {
		sorted = append(sorted, value)
	}
	sort.Strings(sorted)
	return sorted
}
