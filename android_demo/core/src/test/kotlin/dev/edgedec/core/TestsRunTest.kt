package dev.edgedec.core

import java.io.File
import java.lang.reflect.Method
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** JUnit leaves out a test that returns something, as `fun x() = assertThrows(...)` does, without a word. */
class TestsRunTest {
    private val compiled = File(javaClass.protectionDomain.codeSource.location.toURI())

    private fun leftOut(methods: Sequence<Method>, marked: (Method) -> Boolean): List<String> = methods
        .filter { marked(it) && it.returnType != Void.TYPE }
        .map { "${it.declaringClass.simpleName}: ${it.name}" }.toList()

    private fun isTest(method: Method) = method.annotations.any { it.annotationClass.simpleName == "Test" }

    @Test
    fun `no test returns anything`() {
        val classes = compiled.walk().filter { it.extension == "class" }
            .map { it.relativeTo(compiled).path.removeSuffix(".class").replace(File.separatorChar, '.') }
            .map { Class.forName(it, false, javaClass.classLoader) }
        val methods = classes.flatMap { it.declaredMethods.asSequence() }
        assertTrue(methods.count(::isTest) > 20)
        assertEquals(emptyList<String>(), leftOut(methods, ::isTest))
    }

    @Test
    fun `a test that returns something is found`() {
        assertEquals(listOf("Wrong: returns"), leftOut(Wrong::class.java.declaredMethods.asSequence()) { true })
    }

    private class Wrong {
        @Suppress("unused")
        fun returns() = 1

        @Suppress("unused")
        fun isRight() = Unit
    }
}
