package dev.edgedec.core

import io.kotest.property.Arb
import io.kotest.property.PropTestConfig
import io.kotest.property.arbitrary.arbitrary
import io.kotest.property.checkAll
import kotlin.random.Random
import kotlinx.coroutines.runBlocking

/** Returns examples that [make] makes of random numbers. */
fun <A> examples(make: (Random) -> A): Arb<A> = arbitrary { make(it.random) }

/** Checks a property on random examples, the same ones in every run. */
fun <A> holds(examples: Arb<A>, times: Int = 200, property: (A) -> Unit) {
    runBlocking { checkAll(PropTestConfig(seed = 20261125, iterations = times), examples) { property(it) } }
}

/** Returns whether an example breaks a property: some must, where what it is about is a broken twin. */
fun <A> isBroken(examples: Arb<A>, times: Int = 200, property: (A) -> Unit): Boolean {
    try {
        holds(examples, times, property)
    } catch (broken: AssertionError) {
        return true
    }
    return false
}

fun Random.pick(vararg choices: Double): Double = choices[nextInt(choices.size)]

fun Random.tokens(count: Int, vocabSize: Int): IntArray = IntArray(count) { nextInt(vocabSize) }
