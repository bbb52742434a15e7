#pragma once
// size_t, ptrdiff_t and NULL are built in.
typedef decltype(nullptr) nullptr_t;
// offsetof of libcu++ is not a constant expression.
#undef offsetof
#define offsetof(type, member) __builtin_offsetof(type, member)
