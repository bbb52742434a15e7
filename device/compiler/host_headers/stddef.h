#pragma once
// size_t, ptrdiff_t and NULL are built in.
typedef decltype(nullptr) nullptr_t;
// That of libcu++ is no constant.
#undef offsetof
#define offsetof(type, member) __builtin_offsetof(type, member)
